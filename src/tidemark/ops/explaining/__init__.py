"""Why was this not counted? Everything that is known of one event, in the order of the flow.

What decides is in modules without I/O; three of them ask the stores.

finding       which event, or refusal, is asked about
gathering     what ledger and views know of it
triggering    what triggers made of the rows that it moved

origins       where its key comes from
contents      what it says, or puts in another's place
corrections   what corrected it, and which of those decides
places        which rows it belongs to
rows          a row before its commit, and what the commit made of it
verdicts      what meters and tables made of it, and why
answering     all of that in a sentence or two

shape         an explanation as it is answered
endpoint      GET /admin/explain
"""
