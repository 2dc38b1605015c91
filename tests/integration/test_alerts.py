"""Every alert is tried out by Prometheus' own tool: it speaks where it should, and only it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.services.prometheus import promtool

ALERTS: Final = Path(__file__).parents[2] / "monitoring" / "prometheus" / "alerts.yaml"

Series = Mapping[str, str | None]

SERVER: Final = 'job="tidemark",instance="a:8787"'
# One sample a minute, and a look at the alerts after half an hour. `1+2x3` is 1 3 5 7, `_` none.
LOOK_AT: Final = "30m"
# As far as each may go without an alert.
HEALTHY: Final[Series] = {
    f"up{{{SERVER}}}": "1+0x60",
    # Somebody else's, which is no matter of ours.
    'up{job="other",instance="x:9"}': "0+0x60",
    f"tidemark_ledger_up{{{SERVER}}}": "1+0x60",
    f"tidemark_sequence_up{{{SERVER}}}": "1+0x60",
    f"tidemark_live_up{{{SERVER}}}": "1+0x60",
    f"tidemark_clock_held{{{SERVER}}}": "0+0x60",
    f'tidemark_commit_failures_total{{{SERVER},code="ledger_unavailable"}}': "7+0x60",
    f'tidemark_commit_seconds_bucket{{{SERVER},le="0.5"}}': "0+98x60",
    f'tidemark_commit_seconds_bucket{{{SERVER},le="1.0"}}': "0+99x60",
    f'tidemark_commit_seconds_bucket{{{SERVER},le="2.0"}}': "0+100x60",
    f'tidemark_commit_seconds_bucket{{{SERVER},le="+Inf"}}': "0+100x60",
    f"tidemark_ingest_queue_events{{{SERVER}}}": "10000+0x60",
    f"tidemark_ingest_conflicts_total{{{SERVER}}}": "5+0x60",
    f"tidemark_ingest_accepted_total{{{SERVER}}}": "0+96x60",
    f'tidemark_ingest_rejected_total{{{SERVER},code="bad_quantity"}}': "0+4x60",
    f'tidemark_copy_up{{{SERVER},copy="mirror"}}': "1+0x60",
    f'tidemark_copy_up{{{SERVER},copy="pipeline"}}': "1+0x60",
    f'tidemark_copy_up{{{SERVER},copy="landing.parquet"}}': "1+0x60",
    f'tidemark_copy_up{{{SERVER},copy="delivery"}}': "1+0x60",
    f'tidemark_copy_lag_seconds{{{SERVER},copy="mirror"}}': "60+0x60",
    f'tidemark_copy_lag_seconds{{{SERVER},copy="pipeline"}}': "60+0x60",
    f'tidemark_copy_lag_seconds{{{SERVER},copy="landing.parquet"}}': "300+0x60",
    # What a receiver does not take is late, and no fault of ours.
    f'tidemark_copy_lag_seconds{{{SERVER},copy="delivery"}}': "3600+0x60",
    f"tidemark_trigger_lag_seconds{{{SERVER}}}": "120+0x60",
    f'tidemark_pipeline_errors_total{{{SERVER},code="overflow"}}': "3+0x60",
    f'tidemark_eventtime_wild_total{{{SERVER},stream="trades"}}': "2+0x60",
    f'tidemark_webhook_attempts_total{{{SERVER},outcome="delivered"}}': "0+60x60",
    f'tidemark_webhook_attempts_total{{{SERVER},outcome="failed"}}': "0+60x60",
    f'tidemark_webhook_outbox_events{{{SERVER},trigger="big",status="dead"}}': "0+0x60",
    f'tidemark_webhook_outbox_events{{{SERVER},trigger="big",status="pending"}}': "9+0x60",
    f'tidemark_webhook_oldest_waiting_seconds{{{SERVER},trigger="big"}}': "3600+0x60",
}


DEAD_LETTERS: Final = f'tidemark_webhook_outbox_events{{{SERVER},trigger="big",status="dead"}}'


class Case(NamedTuple):
    """What is otherwise than it should be, and what is said of it."""

    alert: str
    changed: Series
    labels: str
    summary: str
    description: str


CASES: Final = (
    Case(
        "TidemarkNotScraped",
        {**dict.fromkeys(HEALTHY), f"up{{{SERVER}}}": "0+0x60"},
        "severity=critical",
        "No Tidemark server is scraped",
        "No server has answered a scrape for 5 minutes, so nothing is known of any.",
    ),
    # One that never answered, one whose job has another name, and one of two that has ended.
    *(
        Case(
            "TidemarkServerDown",
            {f'up{{job="{job}",instance="b:8787"}}': "0+0x60", **others},
            f"job={job} instance=b:8787 severity=critical",
            "b:8787 is not scraped",
            "It has not answered a scrape for 5 minutes, while other servers have.",
        )
        for job, others in (
            ("tidemark", {}),
            ("eu-tidemark", {}),
            ("events", {'tidemark_ledger_up{job="events",instance="b:8787"}': "1+0x9 _x60"}),
        )
    ),
    Case(
        "TidemarkLedgerUnavailable",
        {f"tidemark_ledger_up{{{SERVER}}}": "1+0x25 0+0x30"},
        "job=tidemark instance=a:8787 severity=critical",
        "The ledger is not answering a:8787",
        "No event can be stored. Senders get a 503 and will send again.",
    ),
    Case(
        "TidemarkClockHeld",
        {f"tidemark_clock_held{{{SERVER}}}": "0+0x29 1+0x30"},
        "job=tidemark instance=a:8787 severity=critical",
        "A leap of the clock holds ingest on a:8787",
        "Nothing is stored there until an operator confirms that the time is right.",
    ),
    Case(
        "TidemarkCommitsFailing",
        {f'tidemark_commit_failures_total{{{SERVER},code="ledger_unavailable"}}': "0+2x60"},
        "job=tidemark instance=a:8787 code=ledger_unavailable severity=warning",
        "Commits are failing on a:8787 with ledger_unavailable",
        "10 groups of requests could not be committed in 5 minutes.",
    ),
    Case(
        "TidemarkCommitsSlow",
        {f'tidemark_commit_seconds_bucket{{{SERVER},le="1.0"}}': "0+98x60"},
        "job=tidemark instance=a:8787 severity=warning",
        "Commits are slow on a:8787",
        "One commit in a hundred takes longer than 1.5s.",
    ),
    Case(
        "TidemarkSequenceAway",
        {f"tidemark_sequence_up{{{SERVER}}}": "1+0x20 0+0x40"},
        "job=tidemark severity=warning",
        "The sequence database is away",
        "Events are stored without a global_sequence, and those will never have one.",
    ),
    Case(
        "TidemarkQueueFilling",
        {f"tidemark_ingest_queue_events{{{SERVER}}}": "0+0x20 15000+0x30"},
        "job=tidemark instance=a:8787 severity=warning",
        "Events are queueing for commits on a:8787",
        "15k events are waiting; at ledger.max_queued_events senders get 429.",
    ),
    Case(
        "TidemarkConflicts",
        {f"tidemark_ingest_conflicts_total{{{SERVER}}}": "0+2x60"},
        "job=tidemark instance=a:8787 severity=warning",
        "A sender uses one key for two things",
        "20 events had a known key but different content, and were not stored.",
    ),
    Case(
        "TidemarkRejectsRising",
        {f'tidemark_ingest_rejected_total{{{SERVER},code="bad_quantity"}}': "0+6x60"},
        "job=tidemark instance=a:8787 severity=warning",
        "More than one event in twenty is being refused on a:8787",
        "100m events a second are being refused.",
    ),
    Case(
        "TidemarkMirrorDown",
        {f'tidemark_copy_up{{{SERVER},copy="mirror"}}': "1+0x25 0+0x30"},
        "job=tidemark copy=mirror severity=critical",
        "The mirror has stopped",
        "Its process is not running, or it has reported an error. Nothing new reaches Kafka.",
    ),
    Case(
        "TidemarkMirrorBehind",
        {f'tidemark_copy_lag_seconds{{{SERVER},copy="mirror"}}': "90+0x60"},
        "job=tidemark copy=mirror severity=warning",
        "The mirror is behind",
        "The oldest commit that is not in Kafka has been waiting for 1m 30s.",
    ),
    Case(
        "TidemarkPipelineStopped",
        {f'tidemark_copy_up{{{SERVER},copy="pipeline"}}': "1+0x25 0+0x30"},
        "job=tidemark copy=pipeline severity=critical",
        "The pipeline has stopped",
        "It has reported an error, or has not moved for a minute. Usage is not updated.",
    ),
    Case(
        "TidemarkPipelineBehind",
        {f'tidemark_copy_lag_seconds{{{SERVER},copy="pipeline"}}': "61+0x60"},
        "job=tidemark copy=pipeline severity=warning",
        "The pipeline is behind",
        "The oldest commit that is not in the views has been waiting for 1m 1s.",
    ),
    # One more, and the first with its code: that one has no number before it to be more than.
    *(
        Case(
            "TidemarkPipelineErrors",
            {f'tidemark_pipeline_errors_total{{{SERVER},code="{code}"}}': values},
            f"job=tidemark code={code} severity=warning",
            f"The pipeline cannot process some events ({code})",
            "They are in the ledger and listed as errors, but in no view.",
        )
        for code, values in (("overflow", "3+0x20 4+0x30"), ("null_time", "_x20 1+0x30"))
    ),
    *(
        Case(
            "TidemarkWildClock",
            {f'tidemark_eventtime_wild_total{{{SERVER},stream="{stream}"}}': values},
            f"job=tidemark stream={stream} severity=warning",
            f"Events of {stream} are dated far in the future",
            "They are accepted but move no watermark. Some sender's clock is wrong.",
        )
        for stream, values in (("trades", "2+0x25 5+0x30"), ("usage", "_x25 1+0x30"))
    ),
    Case(
        "TidemarkLandingDown",
        {f'tidemark_copy_up{{{SERVER},copy="landing.parquet"}}': "1+0x25 0+0x30"},
        "job=tidemark copy=landing.parquet severity=warning",
        "landing.parquet has stopped",
        "Its process is not running, or it has reported an error. Analysts are reading old data.",
    ),
    Case(
        "TidemarkLandingBehind",
        {f'tidemark_copy_lag_seconds{{{SERVER},copy="landing.parquet"}}': "400+0x60"},
        "job=tidemark copy=landing.parquet severity=warning",
        "landing.parquet is behind",
        "The oldest commit that is not landed has been waiting for 6m 40s.",
    ),
    Case(
        "TidemarkLiveDegraded",
        {f"tidemark_live_up{{{SERVER}}}": "1+0x25 0+0x30"},
        "job=tidemark instance=a:8787 severity=critical",
        "Subscriptions or triggers are degraded on a:8787",
        "They have stopped in one of its processes, or GraphQL is not served as configured.",
    ),
    Case(
        "TidemarkDeliveryDegraded",
        {f'tidemark_copy_up{{{SERVER},copy="delivery"}}': "1+0x25 0+0x30"},
        "job=tidemark copy=delivery severity=critical",
        "Triggers or their webhooks have stopped",
        "The store of triggers is away, no process evaluates them, or one of them cannot be made or"
        " cannot go on.",
    ),
    Case(
        "TidemarkDeliveryBehind",
        {f"tidemark_trigger_lag_seconds{{{SERVER}}}": "200+0x60"},
        "job=tidemark severity=warning",
        "Triggers are behind",
        "The oldest commit that the slowest trigger has not evaluated has been waiting for 3m 20s.",
    ),
    # With attempts hours apart no rate tells of it.
    Case(
        "TidemarkWebhooksWaiting",
        {
            f'tidemark_webhook_oldest_waiting_seconds{{{SERVER},trigger="big"}}': "5400+60x60",
            f'tidemark_webhook_attempts_total{{{SERVER},outcome="delivered"}}': "7+0x60",
            f'tidemark_webhook_attempts_total{{{SERVER},outcome="failed"}}': "7+0x60",
        },
        "job=tidemark trigger=big severity=warning",
        "Webhooks of big are not arriving",
        "The oldest one still to be delivered has been waiting for 2h 0m 0s.",
    ),
    Case(
        "TidemarkWebhooksFailing",
        {f'tidemark_webhook_attempts_total{{{SERVER},outcome="delivered"}}': "0+0x60"},
        "job=tidemark severity=warning",
        "Most attempts to deliver webhooks are failing",
        "1 attempts a second are failing, more than succeed.",
    ),
    Case(
        "TidemarkDeadLetters",
        {DEAD_LETTERS: "2+0x60"},
        "job=tidemark trigger=big severity=warning",
        "Webhooks of big have been given up",
        "2 of its events were not delivered in the time they had.",
    ),
)


def all_alerts() -> list[str]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"]]


def look(directory: Path, changed: Series, expected: Mapping[str, Any]) -> None:
    """All alerts, over what is healthy but for this."""
    series = {**HEALTHY, **changed}
    given = [{"series": name, "values": values} for name, values in series.items() if values]
    wanted = [
        {"eval_time": LOOK_AT, "alertname": alert, "exp_alerts": expected.get(alert, [])}
        for alert in all_alerts()
    ]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": wanted}
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}
    file = directory / "case.yaml"
    file.write_text(yaml.safe_dump(document))
    ran = promtool("test", "rules", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_where_all_is_well_no_alert_says_anything(tmp_path: Path) -> None:
    look(tmp_path, {}, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_says_what_is_wrong_and_no_other_does(case: Case, tmp_path: Path) -> None:
    look(tmp_path, case.changed, {case.alert: [said_by(case)]})


def said_by(case: Case) -> dict[str, Any]:
    """The alert as Prometheus raises it."""
    labels = dict(pair.split("=", 1) for pair in case.labels.split())
    annotations = {
        "summary": case.summary,
        "description": case.description,
        "runbook": f"docs/howto/runbook.md#{case.alert.lower()}",
    }
    return {"exp_labels": labels, "exp_annotations": annotations}


def test_a_dead_letter_does_not_silence_the_alert_that_nothing_is_delivered(
    tmp_path: Path,
) -> None:
    cases = {case.alert: case for case in CASES}
    both = [cases["TidemarkDeliveryDegraded"], cases["TidemarkDeadLetters"]]
    changed = {name: values for case in both for name, values in case.changed.items()}
    look(tmp_path, changed, {case.alert: [said_by(case)] for case in both})


def test_what_shares_a_job_with_a_server_and_never_was_one_is_no_matter_of_ours(
    tmp_path: Path,
) -> None:
    changed = {
        'up{job="apps",instance="a:8787"}': "1+0x60",
        'tidemark_ledger_up{job="apps",instance="a:8787"}': "1+0x60",
        'up{job="apps",instance="c:9000"}': "0+0x60",
    }
    look(tmp_path, changed, {})


def test_every_alert_is_tried_out() -> None:
    assert list(dict.fromkeys(case.alert for case in CASES)) == all_alerts()


def test_what_passes_in_a_minute_wakes_nobody(tmp_path: Path) -> None:
    look(
        tmp_path,
        {
            name: "1+0x29 0+0x30" if name.startswith("tidemark_copy_up") else "0+0x29 9999+0x30"
            for name in HEALTHY
            if name.startswith("tidemark_copy_")
        },
        {},
    )


def test_errors_of_old_that_another_server_tells_of_too_are_no_news(tmp_path: Path) -> None:
    other = SERVER.replace("a:8787", "b:8787")
    name = f'tidemark_pipeline_errors_total{{{other},code="overflow"}}'
    look(tmp_path, {name: "_x25 3+0x30"}, {})


def test_prometheus_takes_the_rules() -> None:
    ran = promtool("check", "rules", ALERTS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
