"""The first stage: events as the ledger has them become facts, in one pass over them.

All of it is built from Spark's own expressions, so it runs compiled and grows with the cluster.
Nothing an event contains can stop it: what cannot be decoded becomes an error fact.
"""
