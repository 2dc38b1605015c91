"""What the headers of a request say about the form of its body."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidemark.errors import RequestError
from tidemark.ingress.rejections import printable

_SHOWN_CHARACTERS: Final = 100


class BodyForm(Enum):
    """The media types that are accepted."""

    EVENTS = "application/json"
    CLOUDEVENT = "application/cloudevents+json"
    CLOUDEVENT_BATCH = "application/cloudevents-batch+json"


def body_form(
    content_type: str | None, content_encoding: str | None = None, *, binary_mode: bool = False
) -> BodyForm:
    """The form of the body, or `RequestError` (415) for one that cannot be read.

    Without a content type the body is taken as `application/json`. `binary_mode` says that the
    request has `ce-` headers.
    """
    if content_encoding is not None and content_encoding.strip().lower() not in ("", "identity"):
        raise RequestError(
            f'the content encoding "{_shown(content_encoding)}" is not supported',
            status=415,
            code="unsupported_content_encoding",
            hint="Send the body as it is, without compression.",
            field="content-encoding",
        )
    media_type, _, parameters = (content_type or BodyForm.EVENTS.value).partition(";")
    media_type = media_type.strip().lower()
    charset = _charset(parameters)
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise RequestError(
            f'the charset "{_shown(charset)}" is not supported',
            status=415,
            code="unsupported_media_type",
            hint="JSON is UTF-8.",
            field="content-type",
        )
    if binary_mode and not media_type.startswith("application/cloudevents"):
        raise RequestError(
            "CloudEvents in binary mode (ce- headers) are not supported",
            status=415,
            code="cloudevents_binary_mode",
            hint=f"Send the event in structured mode, as {BodyForm.CLOUDEVENT.value}.",
            field="content-type",
        )
    try:
        return BodyForm(media_type)
    except ValueError:
        accepted = ", ".join(form.value for form in BodyForm)
        raise RequestError(
            f'the content type "{_shown(media_type)}" is not supported',
            status=415,
            code="unsupported_media_type",
            hint=f"Accepted are {accepted}.",
            field="content-type",
        ) from None


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"').lower()
    return "utf-8"


def _shown(text: str) -> str:
    return printable(text, _SHOWN_CHARACTERS)
