"""What the pipeline hands on: views with typed columns, and batches of what became of their rows.

`schema` says what a view looks like, `encoding` how its rows and keys are written, `batch` what one
step writes and whether it is its turn, `port` what a store of views must do for the pipeline.
"""
