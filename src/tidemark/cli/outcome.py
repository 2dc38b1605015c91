"""How a command ends: its exit code, and an error as people and as programs read it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tidemark.cli.output import write_json, write_note
from tidemark.errors import TidemarkError


class ExitCode(IntEnum):
    """What the caller of a command learns without reading a word."""

    OK = 0
    FAILED = 1
    UNUSABLE = 2
    REFUSED = 3
    INTERRUPTED = 130
    TERMINATED = 143


EXIT_CODES = {
    ExitCode.OK: "Everything was done. For `send` and `import`: every event is in the ledger.",
    ExitCode.FAILED: "It could not be done: a server or a database is away, access was denied."
    " For `verify`: something differs. For `status`: something is degraded or unavailable.",
    ExitCode.UNUSABLE: "The command line, the configuration or a file named in them is at fault.",
    ExitCode.REFUSED: "`send` and `import`: it went through, but some events were refused.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C before the end.",
    ExitCode.TERMINATED: "Ended by SIGTERM before the end.",
}

USAGE = "usage"
# Errors that only another command line or configuration can mend.
_UNUSABLE_CODES = frozenset(
    {
        USAGE,
        "config_invalid",
        "definition_changed",
        "event_file_unreadable",
        "graphql_variables",
        "invalid_filter",
        "invalid_parameter",
        "invalid_setting",
        "invalid_trigger",
        "invalid_view",
        "java_missing",
        "java_too_old",
        "salt_mismatch",
        "unknown_meter",
        "webhook_refused",
    }
)


class Terminated(SystemExit):
    """SIGTERM arrived; whoever has something to put away does so and lets it pass."""


def usage_error(message: str, hint: str = "", field: str | None = None) -> TidemarkError:
    """What was asked for cannot be done as it was asked."""
    return TidemarkError(message, hint=hint, field=field, code=USAGE)


def unreadable(path: object, error: OSError, *, what: str = "read") -> TidemarkError:
    """A file that was named and cannot be used."""
    return usage_error(f"{path} cannot be {what}: {error.strerror or error}")


def exit_code_of(error: TidemarkError) -> ExitCode:
    return ExitCode.UNUSABLE if error.code in _UNUSABLE_CODES else ExitCode.FAILED


def report(error: TidemarkError, *, as_json: bool) -> None:
    """Tell of an error: as JSON on stdout for programs, as text on stderr for people."""
    if as_json:
        write_json({"error": error_document(error)})
    else:
        _write_text(error)


def error_document(error: TidemarkError) -> dict[str, Any]:
    """The one shape of an error; a configuration's problems are listed one by one."""
    document: dict[str, Any] = dict(error.as_dict())
    problems = getattr(error, "problems", None)
    if problems is not None:
        document["message"] = _headline(error)
        document["problems"] = [
            {
                "path": problem.path,
                "message": problem.message,
                "hint": problem.hint,
                "where": problem.where,
            }
            for problem in problems
        ]
    return document


def _write_text(error: TidemarkError) -> None:
    problems = getattr(error, "problems", None)
    if problems is None:
        write_note(f"error: {error.message}", style="red")
        if error.field and error.field not in error.message:
            write_note(f"field: {error.field}")
        if error.hint:
            write_note(f"hint: {error.hint}")
        return
    write_note(f"error: {_headline(error)}", style="red")
    for problem in problems:
        place = ": ".join(part for part in (problem.where, problem.path) if part)
        write_note(f"  {place}: {problem.message}" if place else f"  {problem.message}")
        if problem.hint:
            write_note(f"    hint: {problem.hint}")


def _headline(error: TidemarkError) -> str:
    source, problems = getattr(error, "source", ""), getattr(error, "problems", ())
    return f"{source} has {len(problems)} problem{'' if len(problems) == 1 else 's'}"
