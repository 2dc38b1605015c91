"""HTTP bodies → validated events with an identity, and the answer to each.

    endpoint             `POST /v1/events`: decode, hand over, answer
    decoder              bytes into one entry per event: a draft, a correction or a rejection
    media, bodies        the request: its form, and the text of each of its events
    usage, streams, controls, cloudevents
                         the kinds of event; `catalogue` finds the stream, `envelopes` is what
                         they have in common
    fields, schemas      what a stream declares its data to be
    trees, members       one event read with care: every fault has a code and a path
    rejections           such a fault as it is kept and answered
    identity             the key of an event that brings none
    drafts               what is handed to the ledger, and what comes back

Nothing here gives an event its place in order: that is the ledger's.
"""
