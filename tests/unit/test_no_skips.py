"""A skipped test looks like a passed one from afar, so here it is a failed one."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"


@pytest.fixture
def checkout(pytester: pytest.Pytester) -> pytest.Pytester:
    """A small project under the rules of this one."""
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    return pytester


@pytest.mark.parametrize(
    "body",
    [
        "@pytest.mark.skip(reason='no server')\ndef test_it():\n    pass",
        "@pytest.mark.skipif(True, reason='no server')\ndef test_it():\n    pass",
        "def test_it():\n    pytest.skip('no server')",
        "@pytest.fixture\ndef server():\n    pytest.skip('no server')\n"
        "def test_it(server):\n    pass",
    ],
)
def test_a_skipped_test_fails_and_keeps_its_reason(checkout: pytest.Pytester, body: str) -> None:
    checkout.makepyfile(f"import pytest\n{body}\n")
    result = checkout.runpytest_inprocess()
    outcomes = result.parseoutcomes()
    assert "skipped" not in outcomes
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == 1
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*this test was skipped*no server*"])


def test_a_module_that_skips_itself_fails(checkout: pytest.Pytester) -> None:
    checkout.makepyfile("import pytest\npytest.skip('no server', allow_module_level=True)")
    result = checkout.runpytest_inprocess()
    assert result.parseoutcomes() == {"errors": 1}
    result.stdout.fnmatch_lines(["*this test was skipped*no server*"])


def test_a_module_that_misses_a_package_fails(checkout: pytest.Pytester) -> None:
    checkout.makepyfile("import pytest\npytest.importorskip('no_such_package')")
    assert checkout.runpytest_inprocess().parseoutcomes() == {"errors": 1}


def test_a_test_that_passes_passes(checkout: pytest.Pytester) -> None:
    checkout.makepyfile("def test_it():\n    pass")
    assert checkout.runpytest_inprocess().parseoutcomes() == {"passed": 1}
