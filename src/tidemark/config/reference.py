"""The reference page and the schema file, written from the models.

    python -m tidemark.config.reference docs/reference

writes both into a directory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tidemark.config.access_model import SCOPES
from tidemark.config.environment import RESERVED
from tidemark.config.live_model import INTROSPECTION
from tidemark.config.model import FIELD_TYPES, Config
from tidemark.config.names import BUILT_IN_EVENTTIME_TYPES
from tidemark.config.pipeline_model import AGGREGATES, PERIODS
from tidemark.config.schema import json_schema
from tidemark.config.section import Section
from tidemark.config.shape import Setting, settings_of
from tidemark.config.window_model import EMITS, LATE_POLICIES

PAGE_NAME: Final = "configuration.md"
SCHEMA_NAME: Final = "tidemark.schema.json"

# What stands for the names in these mappings.
_NAMED: Final = {
    "streams": "name",
    "fields": "field",
    "meters": "name",
    "views": "name",
    "windows": "name",
    "ordered": "stream",
    "triggers": "name",
}

_INTRODUCTION: Final = """\
# Configuration

Tidemark is configured by one YAML file, `tidemark.yaml`. `tidemark init` writes a commented sample,
`tidemark check` reads the file and reports every problem in it at once: where it is, what was
expected, what was found. A file without anything in it has all the defaults and no streams.

[`tidemark.schema.json`](tidemark.schema.json) describes the file to editors. Those that use the
YAML language server take it from a first line such as

```yaml
# yaml-language-server: $schema=docs/reference/tidemark.schema.json
```

This page and the schema are written from the code by `python -m tidemark.config.reference
docs/reference`.
"""

_VALUES: Final = """\
## How values are written

- **Durations** are a whole number and a unit: `us`, `ms`, `s`, `m`, `h` or `d`. `250ms`, `48h`.
- **Paths** that are relative are relative to the directory of the file.
- **Addresses** are `sqlite:///ledger.db` (relative), `sqlite:////var/lib/ledger.db` (absolute) or
  `postgresql://user:password@host:5432/name`; `postgres://` means the same. In a user name or
  password, `@ : / ? #` are written `%40 %3A %2F %3F %23`.
- **Truth values** are `true` and `false`. As in YAML 1.2, `yes`, `no`, `on` and `off` are text.
- A key may stand once, tags are refused, and anchors with aliases and `<<` work.
- **Expressions** are Spark SQL. One that begins with a quote, a bracket or a `*`, or holds `: ` or
  ` #`, stands in quotes.
- **Filters** are those of GraphQL's `where`: `{status: {_eq: open}, quantity: {_gt: 10}}`. Decimals
  and whole numbers of 64 bits stand in quotes where every digit counts.
- The salt, passwords in addresses, the hashes of keys, the secrets of tokens and of webhooks, the
  addresses of webhooks and the options of Spark appear in no error and no log.
"""

_ENVIRONMENT: Final = """\
## Environment variables

Each setting is also an environment variable: `TIDEMARK_` and the path of the setting, joined by two
underscores. `TIDEMARK_HTTP__PORT=9000` is `http: {port: 9000}`. The environment wins over the file.

- Case and single underscores do not matter: `TIDEMARK_STREAMS__TRADES__IDLEAFTER` and
  `TIDEMARK_STREAMS__TRADES__IDLE_AFTER` both set `streams.trades.idleAfter`. In the name of a
  stream or of an option of Spark a dot or a dash is written `_` or left out.
- Text, paths, addresses and durations are taken as they are, without quotes. Everything else is
  YAML: `true`, `8080`, `[a.example.com, b.example.com]`, also JSON. Lists are set as a whole.
- An empty variable is an empty value: no address, no entries.
- A stream, a meter, a view or a trigger must be in the file before the environment can change a
  setting of it; `TIDEMARK_STREAMS`, `TIDEMARK_METERS`, `TIDEMARK_VIEWS` and `TIDEMARK_TRIGGERS`
  replace all of them.
- A variable that begins with `TIDEMARK_` and is no setting is an error, so that a misspelling is
  not overlooked. Those that Kubernetes makes for a service called `tidemark` are passed over.

These are no settings:
"""


def reference_page() -> str:
    """Every setting with its default and one sentence, as Markdown."""
    return "\n".join(_page())


def write_reference(directory: Path) -> None:
    """Write the page and the schema."""
    (directory / PAGE_NAME).write_text(reference_page(), encoding="utf-8")
    (directory / SCHEMA_NAME).write_text(schema_text(), encoding="utf-8")


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Settings\n"
    yield from _settings("", Config)
    yield "## Types of fields\n"
    yield from _list(FIELD_TYPES.items())
    yield "## Aggregates of meters and windows\n"
    yield from _list(AGGREGATES.items())
    yield "## Periods of meters\n"
    yield from _list(PERIODS.items())
    yield "## When the rows of windows appear\n"
    yield from _list(EMITS.items())
    yield "## What windows do with late events\n"
    yield from _list(LATE_POLICIES.items())
    yield "## Types of event time\n"
    yield from _list(BUILT_IN_EVENTTIME_TYPES.items())
    yield "## Scopes of keys and tokens\n"
    yield from _list(SCOPES.items())
    yield "## Who may introspect\n"
    yield from _list(INTROSPECTION.items())
    yield _VALUES
    yield _ENVIRONMENT
    yield from _list(RESERVED.items())


def _settings(prefix: str, model: type[Section]) -> Iterator[str]:
    """A table of what stands in a section itself, then one for each section within it."""
    settings = settings_of(model)
    yield from _table(prefix, {key: s for key, s in settings.items() if s.shape.model is None})
    for key, setting in settings.items():
        inner, place = setting.shape, f"{prefix}{key}"
        if inner.model is not None:
            yield from _section(f"`{place}`", inner.model, f"{place}.")
        elif inner.item is not None and inner.item.model is not None:
            is_list = inner.kind == "list"
            title = f"`{place}`, each entry" if is_list else f"`{place}.<{_NAMED[key]}>`"
            entry = f"{place}[]." if is_list else f"{place}.<{_NAMED[key]}>."
            yield from _section(title, inner.item.model, entry)


def _section(title: str, model: type[Section], prefix: str) -> Iterator[str]:
    yield f"### {title}\n\n{' '.join((model.__doc__ or '').split())}\n"
    yield from _settings(prefix, model)


def _table(prefix: str, settings: Mapping[str, Setting]) -> Iterator[str]:
    yield "| setting | takes | default | meaning |"
    yield "|---|---|---|---|"
    for key, setting in settings.items():
        cells = (f"`{prefix}{key}`", setting.shape.expected, _default(setting), _sentence(setting))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    if setting.default is None:
        return "none"
    text = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
    return f"`{text}`"


def _sentence(setting: Setting) -> str:
    return setting.info.description or ""


def _list(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, sentence in entries:
        yield f"- `{name}`: {sentence}"
    yield ""


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
