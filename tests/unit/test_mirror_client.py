"""Tidemark as it is installed by those who do not use Kafka, and ask for it all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tidemark.errors import ConfigError
from tidemark.mirror.errors import client_needed

WITHOUT_IT: Final = "import sys; sys.modules['confluent_kafka'] = None; "
MIRROR: Final = """
from tidemark.cli.program import run
sys.exit(run(["mirror", "--until-caught-up", "--config", sys.argv[1]]))
"""
# What `verify --deep` and a pipeline with `source: kafka` do, without a Spark of their own.
OTHERS: Final = """
import threading
from pathlib import Path
from tidemark.app.event_source import event_source
from tidemark.app.landing import _compare_kafka
from tidemark.config import load_config
from tidemark.errors import ConfigError
config = load_config(Path(sys.argv[1]), {})
try:
    %s
except ConfigError as error:
    sys.exit(f"{error.message} {error.hint}")
"""


@pytest.mark.parametrize(
    "program",
    [
        MIRROR,
        OTHERS % "_compare_kafka(config, lambda *_: None, threading.Event())",
        OTHERS % "event_source(config, None, None, threading.Event())",
    ],
    ids=["mirror", "verify", "pipeline"],
)
def test_whoever_needs_the_client_is_told_what_to_install(program: str, tmp_path: Path) -> None:
    path = tmp_path / "tidemark.yaml"
    path.write_text(f"""
state_dir: {tmp_path / "state"}
ledger: {{url: "sqlite:///{tmp_path / "ledger.db"}"}}
pipeline: {{source: kafka}}
mirror: {{enabled: true, bootstrap_servers: "127.0.0.1:1"}}
""")
    command = [sys.executable, "-c", WITHOUT_IT + program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "the client of Kafka is not installed" in done.stderr
    assert "pip install '.[kafka]' in a checkout" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("no", name="confluent_kafka"), "is not installed"),
        (ModuleNotFoundError("no", name="confluent_kafka.cimpl"), "is not installed"),
        (ImportError("no such symbol", name="confluent_kafka.cimpl"), "loaded: no such symbol"),
    ],
)
def test_a_client_that_cannot_be_loaded_is_told_of(error: ImportError, said: str) -> None:
    with pytest.raises(ConfigError, match=said), client_needed():
        raise error


def test_what_else_cannot_be_loaded_is_no_matter_of_the_client() -> None:
    with pytest.raises(ModuleNotFoundError, match="no"), client_needed():
        raise ModuleNotFoundError("no", name="tidemark.of_nobody")
