"""The mirror: every event of the ledger in Kafka, once, in the ledger's order.

messages (what is sent) → partitioning (which partition it goes to) → places (where it went) → kafka
(the client) → position (how far the topics are) → known (what was sent to them) → topics (what
they must be) → hanging (what Kafka left open) → chunks (what is sent at once) → ahead (the next of
them, made ready) → watching (what becomes of them) → sending (one transaction) → telling (how far
it is) → following (one after the other).
"""
