"""Who speaks GraphQL, and which rows they see.

claims    values in a verified token, by their path
keys      what tokens are verified with: a secret, a public key, a set of keys in a file
tokens    a token's signature, time, issuer and audience
sessions  one caller, known by an API key or a token
rules     the filter that is ANDed below everything a session asks for
"""

from tidemark.live.access.rules import RowRules
from tidemark.live.access.sessions import (
    Gatekeeper,
    Session,
    session_from_json,
    session_of,
    session_to_json,
)

__all__ = [
    "Gatekeeper",
    "RowRules",
    "Session",
    "session_from_json",
    "session_of",
    "session_to_json",
]
