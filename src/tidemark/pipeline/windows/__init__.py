"""Windows: what the events of a stream come to in each stretch of event time.

A window closes when the watermark of its tenant in its stream reaches its end, or when the stream
is ended. Watermarks are the time stage's and known in the driver only, after the tasks; so the
tasks decode, and the driver folds, in an SQL engine over Arrow: `fold` takes plain events, many at
once, and `corrected` takes one key from the beginning of the ledger, whenever an event of it was
corrected.
"""
