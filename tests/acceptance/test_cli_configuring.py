"""`init`, `check` and `keygen`: from nothing to a configuration with a key in it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.acceptance.cli_runs import PROGRAM, tidemark
from tidemark.config import json_schema, load_config, sample_text

FAULTY = """\
http:
  prot: 9000
ledger:
  url: postgresql://tidemark:secret-word@localhost/db
streams:
  trades:
    identity: [trade_id]
    fields:
      trade_id: strng
"""


def test_init_writes_the_sample_and_says_what_to_do_next(tmp_path: Path) -> None:
    ran = tidemark("init", cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "tidemark.yaml").read_text() == sample_text()
    assert re.findall(r"tidemark check|tidemark up --demo", ran.out) == [
        "tidemark check",
        "tidemark up --demo",
    ]
    assert tidemark("check", cwd=tmp_path).code == 0


def test_init_leaves_a_file_that_is_there_alone(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("mine")
    ran = tidemark("init", "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["code"]) == (1, "file_exists")
    assert "--force" in ran.json["error"]["hint"]
    assert (tmp_path / "tidemark.yaml").read_text() == "mine"


def test_init_replaces_a_file_when_told_to(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("mine")
    assert tidemark("init", "--force", cwd=tmp_path).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["tidemark.yaml"]
    assert (tmp_path / "tidemark.yaml").read_text() == sample_text()


@pytest.mark.parametrize(
    ("given", "written"),
    [("sub dir", "sub dir/tidemark.yaml"), ("x/y.yaml", "x/y.yaml"), (".", "tidemark.yaml")],
)
def test_init_takes_a_directory_or_a_file(tmp_path: Path, given: str, written: str) -> None:
    ran = tidemark("init", given, "--json", cwd=tmp_path)
    assert (ran.code, ran.json["path"]) == (0, written)
    assert (tmp_path / written).read_text() == sample_text()
    # As it can be typed here: where the shell does not find the program, with its path.
    program = "tidemark" if shutil.which("tidemark") else str(PROGRAM)
    options = {"sub dir": " -c 'sub dir/tidemark.yaml'", "x/y.yaml": " -c x/y.yaml", ".": ""}
    assert ran.json["next"][0] == f"{program} check{options[given]}"


def test_init_says_why_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    ran = tidemark("init", "occupied/tidemark.yaml", cwd=tmp_path)
    assert ran.code == 2
    assert "occupied/tidemark.yaml cannot be written" in ran.err


def test_check_tells_what_the_sample_means(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text(sample_text())
    ran = tidemark("check", cwd=tmp_path)
    assert ran.code == 0
    assert "tidemark.yaml is valid" in ran.out
    assert f"SQLite, {tmp_path}/tidemark-state/ledger.db" in ran.out
    assert "open to everyone on this machine" in ran.out
    for word in ("usage", "trades", "trade_id string", "side buy|sell", "executed_at timestamp"):
        assert word in ran.out
    assert "warning: auth.keys" in ran.err
    document = tidemark("check", "--json", cwd=tmp_path).json
    assert document["valid"] is True
    assert document["access"] == {"mode": "open", "keys": [], "issuers": []}
    assert document["streams"]["trades"]["fields"]["side"] == {
        "type": "enum",
        "required": True,
        "values": ["buy", "sell"],
    }
    assert [warning["path"] for warning in document["warnings"]] == ["auth.keys"]


def test_check_lists_every_problem_with_its_place_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text(FAULTY)
    ran = tidemark("check", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "tidemark.yaml has 2 problems" in ran.err
    assert re.search(r"line 2, column \d+: http\.prot: .*\n +hint: Did you mean `port`", ran.err)
    assert re.search(r"line 9, .*streams\.trades\.fields\.trade_id.*\n +hint: .*string", ran.err)
    error = tidemark("check", "--json", cwd=tmp_path).json["error"]
    assert error["code"] == "config_invalid"
    assert [problem["path"] for problem in error["problems"]] == [
        "http.prot",
        "streams.trades.fields.trade_id.type",
    ]
    assert all(problem["where"].startswith("line ") for problem in error["problems"])


def test_check_warns_of_what_is_seldom_meant(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text("")
    ran = tidemark("check", cwd=tmp_path)
    assert ran.code == 0
    assert "warning: streams: there are no streams" in ran.err


def test_check_warns_where_nothing_is_ever_late_but_takes_the_file(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text(
        "streams: {usage: {kind: usage}}\nmeters: {daily: {period: day}, monthly: {}}\n"
    )
    ran = tidemark("check", cwd=tmp_path)
    assert ran.code == 0
    assert "warning: meters.daily: a lateness of 2d covers the whole day" in ran.err
    assert "meters.monthly" not in ran.err


def test_check_shows_no_secret(tmp_path: Path) -> None:
    secret = "secret-word"
    valid = FAULTY.replace("prot", "port").replace("strng", "string")
    (tmp_path / "tidemark.yaml").write_text(
        valid + f"sequence: {{url: 'postgresql://u:{secret}@h/s'}}\n"
        f"auth: {{keys: [{{name: a, sha256: '{'ab' * 32}', scopes: [read], tenants: [t]}}]}}\n"
    )
    for args in (["check"], ["check", "--json"], ["migrate", "--json"]):
        ran = tidemark(*args, cwd=tmp_path)
        assert secret not in ran.out + ran.err
        assert "ab" * 32 not in ran.out + ran.err
    assert "a: read for t" in tidemark("check", cwd=tmp_path).out


def test_check_prints_the_schema(tmp_path: Path) -> None:
    ran = tidemark("check", "--schema", cwd=tmp_path)
    assert (ran.code, json.loads(ran.out)) == (0, json_schema())


def test_a_fault_of_an_option_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "tidemark.yaml").write_text(sample_text())
    ran = tidemark("serve", "--host", "0.0.0.0", "--json", cwd=tmp_path)
    assert ran.code == 2
    [problem] = ran.json["error"]["problems"]
    assert (problem["where"], problem["path"]) == ("--host", "http.host")
    assert "auth.keys" in problem["message"]


def test_keygen_prints_a_key_and_what_to_paste(tmp_path: Path) -> None:
    args = ["--name", 'Bob "the" Builder: #1', "--scope", "read", "--scope", "admin"]
    ran = tidemark("keygen", *args, "--tenant", "a", "--tenant", "*", cwd=tmp_path)
    assert ran.code == 0
    key, block = ran.out.split("\n", 1)
    assert re.fullmatch(r"tmk_[A-Za-z0-9_-]{43}", key)
    assert key not in block
    path = tmp_path / "pasted.yaml"
    path.write_text(block)
    [known] = load_config(path, {}).auth.keys
    assert known.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert known.name == 'Bob "the" Builder: #1'
    assert (known.scopes, known.tenants) == (["read", "admin"], ["a", "*"])
    assert [found.name for found in tmp_path.iterdir()] == ["pasted.yaml"]


def test_keygen_never_makes_the_same_key_again(tmp_path: Path) -> None:
    args = ["keygen", "--name", "a", "--tenant", "*", "--json"]
    documents = [tidemark(*args, cwd=tmp_path).json for _ in range(2)]
    assert documents[0]["key"] != documents[1]["key"]
    for document in documents:
        assert document["sha256"] == hashlib.sha256(document["key"].encode()).hexdigest()
        assert document["scopes"] == ["ingest"]


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 257])
def test_keygen_refuses_a_name_that_no_configuration_takes(tmp_path: Path, name: str) -> None:
    ran = tidemark("keygen", "--name", name, "--tenant", "*", "--json", cwd=tmp_path)
    assert (ran.code, ran.json["error"]["field"]) == (2, "name")
