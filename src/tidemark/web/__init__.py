"""HTTP without a framework: requests, responses, routes and who may call them.

Ingest spends its time here once per request, so this is plain ASGI and nothing more. Stages bring
their own handlers; nothing here knows what an event is.
"""
