"""`tidemark verify`: an untouched store passes, and whatever was tampered with is named."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import on_terminal, tidemark, without_escapes
from tests.acceptance.pipelines import fill_ledger, history, write_config
from tests.acceptance.warm_runs import tidemark_on_spark

# Each is a fault of its own, and how the line that names it begins.
FAULTS = {
    "UPDATE view_api_calls SET agg_count = agg_count + 1 WHERE customer_ref = 'c-1'": (
        r'row of api_calls \["acme","api_calls","c-1",.*\]: agg_count is "7", recomputed it is "6"'
    ),
    "UPDATE view_api_calls SET last_sequence = 1 WHERE customer_ref = 'c-2'": (
        r'row of api_calls .*"c-2".*: last_sequence is "1", recomputed it is "\d+"'
    ),
    "DELETE FROM view_users__members WHERE of_row LIKE '%\"c-0\"%'": (
        r"row of users__members .* is missing: "
    ),
    "DELETE FROM view_changes WHERE view = 'trades' AND op = 'delete'": (
        r'change of trades \[\d+,"\[\\"acme\\",\\"t-1\\"\]"\] is missing: '
    ),
    "UPDATE view_changes SET row = replace(row, '10', '11') WHERE view = 'trades'"
    " AND row_key LIKE '%t-2%'": r"change of trades .*: row is .*\\\"11\\\".*, recomputed it is ",
    "INSERT INTO view_changes SELECT 'users', received_at, '[]', 'insert', NULL, '{}', NULL"
    " FROM frontier": r'change of users \[\d+,"\[\]"\] should not be there: ',
    "DELETE FROM adjustments WHERE reason = 'void'": (
        r'adjustment \[36,"api_calls",0\] is missing: .*"reason":"void"'
    ),
    "DELETE FROM pipeline_errors WHERE ingress_sequence < 12": (
        r'error \[1[01],"table trades"\] is missing: '
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("verified")
    write_config(home)
    fill_ledger(home, history())
    assert tidemark("verify", cwd=home).out.startswith("Nothing was folded yet")
    assert tidemark_on_spark("pipeline", "--until-caught-up", cwd=home).code == 0
    return home


def dump(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "state" / "views.db")) as connection:
        return list(connection.iterdump())


def test_an_untouched_store_passes_and_is_left_as_it_was(home: Path) -> None:
    before = dump(home)
    ran = on_terminal("verify", cwd=home)
    shown = without_escapes(ran.out)
    assert ran.code == 0
    assert re.search(r"recomputing ━+ +100% .*36 of 36 events", shown)
    assert "Recomputed from the ledger up to sequence 36 at 2026-03-03T13:00:00.000000Z" in shown
    assert re.search(r"  api_calls rows +3 same +[0-9a-f]{12}", shown)
    assert "No difference." in shown
    assert dump(home) == before
    assert list((home / "state" / "verify").glob("scratch-*")) == []


def test_every_fault_is_found_and_named(home: Path) -> None:
    with closing(sqlite3.connect(home / "state" / "views.db")) as connection, connection:
        for statement in FAULTS:
            assert connection.execute(statement).rowcount == 1, statement
    ran = tidemark_on_spark("verify", "--json", "--limit", 5, cwd=home)
    document = json.loads(ran.out)
    assert (ran.code, document["same"]) == (1, False)
    assert list(document) == [
        *("config", "same", "sequence", "receivedAt", "compared"),
        *("differences", "differencesLeftOut", "unchecked", "landing"),
    ]
    lines = [_text(difference) for difference in document["differences"]]
    for statement, line in FAULTS.items():
        assert [text for text in lines if re.match(line, text)], (statement, lines)
    # A row that was changed or is missing is one difference for each of its columns or none.
    assert len(lines) == len(FAULTS)
    for part in document["compared"]:
        assert (part["liveHash"] == part["recomputedHash"]) == (part["differenceCount"] == 0)


def _text(difference: dict[str, object]) -> str:
    import msgspec

    from tidemark.cli.verifying import difference_text
    from tidemark.ops.verification import Difference

    return difference_text(msgspec.convert(difference, Difference))
