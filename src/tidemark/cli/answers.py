"""What a server says when it does not do as asked, as an error of the command that asked it."""

from __future__ import annotations

import msgspec

from tidemark.errors import ClientError, TidemarkError


class _ErrorBody(msgspec.Struct):
    code: str
    message: str
    hint: str = ""
    field: str | None = None


class _Refusal(msgspec.Struct):
    error: _ErrorBody


_decode_refusal = msgspec.json.Decoder(_Refusal).decode


def refusal(status: int, body: bytes, wanted: str) -> TidemarkError:
    """The error in an answer that is not what was wanted."""
    try:
        found = _decode_refusal(body).error
    except msgspec.MsgspecError:
        return not_ours(f"HTTP {status} and no {wanted}")
    return ClientError(found.message, hint=found.hint, field=found.field, code=found.code)


def not_ours(what: str) -> ClientError:
    return ClientError(
        what,
        hint="The answer is not one of Tidemark's. Check the URL and any proxy before it.",
        code="unexpected_answer",
    )


def unreachable(url: str, failed: object) -> ClientError:
    return ClientError(
        f"the server at {url} cannot be reached: {failed}",
        hint="Is it running? `tidemark up` starts one; --url or $TIDEMARK_URL names another.",
        code="unreachable",
    )
