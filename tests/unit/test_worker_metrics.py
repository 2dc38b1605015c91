"""Metrics of several workers, each of which writes files that all the others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from tidemark.ops.metrics import Metrics


async def shown() -> str:
    request: Any = None
    answer = await Metrics().get(request)
    assert answer.status == 200
    return bytes(answer.body).decode()


async def test_a_worker_that_starts_or_died_then_does_not_keep_others_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    written = MmapedDict(str(tmp_path / "counter_7.db"))
    name = "tidemark_ingest_accepted"
    written.write_value(mmap_key(name, f"{name}_total", [], [], "Events."), 3.0, 0.0)
    # What a file is between being opened and being written to first.
    (tmp_path / "counter_8.db").touch()
    (tmp_path / "gauge_livesum_8.db").touch()
    # And then, for a moment, is all zeros.
    (tmp_path / "histogram_8.db").write_bytes(bytes(1 << 16))
    assert f"{name}_total 3.0" in await shown()
    written.close()
