"""The mirror: every event of the ledger in Kafka, once, in the ledger's order.

messages (what is sent) → places (where it went) → kafka (the client) → topics (what they must be) →
position (how far the topics are) → hanging (what Kafka left open) → chunks (what is sent at once) →
sending (one transaction) → following (one after the other).
"""
