"""Why was this not counted? Everything that is known of one event, in the order of the flow.

What decides is in modules without I/O; four of them ask the stores.

finding       which event, or refusal, is asked about
in_ledger     what the ledger knows of it
gathering     what the views know of it
triggering    what triggers made of the rows that it moved

origins       where its key comes from
contents      what it says, or puts in another's place
corrections   what corrected it, and which of those decides
event_times   when it happened, and how far time had come before it
places        which rows it belongs to: with window_places
rows          a row before its commit, and what the commit made of it
verdicts      what meters made of it, and why: with table_verdicts and window_verdicts
answering     all of that in a sentence or two

shape         an explanation as it is answered: with row_shapes and window_shape
endpoint      GET /admin/explain
"""
