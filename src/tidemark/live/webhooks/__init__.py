"""Delivery of a durable outbox by signed webhooks.

outbox      what delivery asks of the store
signing     Standard Webhooks signatures
addresses   which addresses are public, and which others the configuration allows
targets     which URLs may be called, and what their names may resolve to
names       resolves names in threads of its own
schedule    what an answer means and when to try again
sender      one attempt: a request, bounded in time and in size
congestion  how many attempts one host may have at a time
lanes       what is held for each host, and whose turn it is
counters    what delivery counts
delivery    claims, sends and settles, until it is stopped
settings    all of this as the configuration says it
"""
