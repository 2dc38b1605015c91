"""Subscriptions over websockets, as `graphql-transport-ws` says.

| module | what it holds |
|---|---|
| `messages` | what client and server say to each other |
| `subscription` | one subscription: what it is sent, and what waits for it |
| `connection` | one websocket: its caller, its subscriptions |
| `endpoint` | all of them: who may connect, and how they end |
"""
