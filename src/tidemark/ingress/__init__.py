"""HTTP bodies → validated events with an identity, and the answer to each.

    media, bodies        the request: its form, and the text of each of its events
    trees, members       one event read with care: every fault has a code and a path
    fields, schemas      what a stream declares its data to be
    identity             the key of an event that brings none
    usage, streams, controls, cloudevents
                         the kinds of event, each into a `Draft`
    decoder              all of it together
    drafts               what is handed to the ledger, and what comes back

Nothing here gives an event its place in order: that is the ledger's.
"""
