"""`compose.yaml` and the image, held against the repository as far as that needs no Docker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tidemark.config import Config, load_config
from tidemark.config.environment import PREFIX, RESERVED

ROOT: Final = Path(__file__).parents[2]
# What the comment at its head asks for.
ASKED_FOR: Final = {
    "TIDEMARK_KEY_SHA256": "0123456789abcdef" * 4,
    "POSTGRES_PASSWORD": "pg1",
    "CLICKHOUSE_PASSWORD": "ch1",
    "GRAFANA_PASSWORD": "gr1",
}
VARIABLE: Final = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def compose(**given: str) -> dict[str, Any]:
    """The file as Compose reads it with these variables."""

    def value(found: re.Match[str]) -> str:
        name, how, default = found.groups()
        if name in given:
            return given[name]
        assert how == "-", f"{name} is not asked for at the head of the file"
        return str(default)

    text = VARIABLE.sub(value, (ROOT / "compose.yaml").read_text())
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


SERVICES: Final[dict[str, Any]] = compose(**ASKED_FOR)["services"]
MOUNTS: Final = [
    (service, *volume.split(":")[:2])
    for service, settings in SERVICES.items()
    for volume in settings.get("volumes", ())
]


def configured(environ: dict[str, str]) -> Config:
    [file] = [source for _, source, place in MOUNTS if place == environ["TIDEMARK_CONFIG"]]
    return load_config(ROOT / file, environ)


def test_the_settings_of_the_container_are_settings_and_make_a_configuration() -> None:
    environ = SERVICES["tidemark"]["environment"]
    assert {name for name in environ if not name.startswith(PREFIX)} == set()
    assert {name for name in environ if name in RESERVED} == {"TIDEMARK_CONFIG"}
    config = configured(environ)
    assert config.ledger.url == "postgresql://tidemark:pg1@postgres/tidemark"
    assert config.landing.clickhouse.url == "http://tidemark:ch1@clickhouse:8123"
    assert (config.mirror.enabled, config.mirror.bootstrap_servers) == (True, "kafka:9092")
    assert [key.sha256 for key in config.auth.keys] == [ASKED_FOR["TIDEMARK_KEY_SHA256"]]
    assert [f"{config.http.port}"] == SERVICES["tidemark"]["ports"][0].split(":")[2:]


def test_a_variable_that_is_no_setting_would_be_found() -> None:
    environ = SERVICES["tidemark"]["environment"] | {"TIDEMARK_LEDGER__ADDRESS": "x"}
    with pytest.raises(Exception, match="TIDEMARK_LEDGER__ADDRESS"):
        configured(environ)


@pytest.mark.parametrize("name", ASKED_FOR)
def test_nothing_starts_without_what_is_asked_for(name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        compose(**{key: value for key, value in ASKED_FOR.items() if key != name})
    assert f"{name}" in (ROOT / "compose.yaml").read_text().partition("\nname:")[0]


@pytest.mark.parametrize("mount", MOUNTS, ids=lambda mount: f"{mount[0]} {mount[1]}")
def test_what_is_mounted_is_a_file_here_or_a_volume(mount: tuple[str, str, str]) -> None:
    _, source, _ = mount
    if source.startswith("./"):
        assert (ROOT / source).is_file()
    else:
        assert source in compose(**ASKED_FOR)["volumes"]


def test_prometheus_and_grafana_read_what_is_mounted() -> None:
    places = {place: source for _, source, place in MOUNTS}
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus.yaml").read_text())
    assert [places[rules] for rules in prometheus["rule_files"]] == [
        "./monitoring/prometheus/alerts.yaml"
    ]
    [scraped] = prometheus["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["tidemark:8787"]}]
    [provider] = yaml.safe_load((ROOT / "deploy/grafana/dashboards.yaml").read_text())["providers"]
    assert places[f"{provider['options']['path']}/tidemark.json"] == (
        "./monitoring/grafana/tidemark.json"
    )
    [source] = yaml.safe_load((ROOT / "deploy/grafana/datasources.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_who_is_waited_for_says_when_it_is_healthy() -> None:
    for settings in SERVICES.values():
        awaited = settings.get("depends_on", {})
        for name in awaited:
            assert name in SERVICES
            if isinstance(awaited, dict):
                assert "healthcheck" in SERVICES[name]


def test_nothing_listens_beyond_this_machine_and_every_image_names_its_version() -> None:
    for name, settings in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in settings.get("ports", ()))
        if name != "tidemark":
            assert re.fullmatch(r"[\w./-]+:v?\d[\w.]*", settings["image"])


def test_the_image_is_made_of_files_that_are_here_and_are_not_ignored() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in shlex.split(line)[:-1]
    ]
    assert "requirements/container.lock" in copied
    assert [source for source in copied if not (ROOT / source).exists()] == []
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert {source.split("/")[0] for source in copied} == set(kept)


def test_kafka_is_of_the_version_that_the_tests_run_against() -> None:
    pinned = (ROOT / "requirements/kafka.jars").read_text()
    [version] = re.findall(r"^org\.apache\.kafka:kafka_2\.13:(\S+) ", pinned, re.MULTILINE)
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version}"
