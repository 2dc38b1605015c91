"""The append-only ledger: one identity, one order.

`sequencer` decides, `sqlite` and `postgres` keep, `group_commit` gathers requests, `importer`
brings a history in. Nothing here ever updates or deletes an event.
"""
