"""The mirror's topics as a source of the pipeline, read with Spark's own connector.

The topic of commits is the stream; it says which messages each commit has and where they are. So a
batch reads exactly these, waits for what is not finished, and finds out what is missing.

resuming (from where on) → planning (which messages) → history (of commits that the ledger has) →
finishing (are they there) → topics (Spark's connector) → checking (are they the right ones) →
source, which the rest of the pipeline calls.
"""
