"""The table lists all metrics, and the code and its labels agree with the table."""

import re

import pytest
from attrs import fields

from safeconsumer import events
from safeconsumer.events import counts
from safeconsumer.holds.hold import KINDS
from safeconsumer.metrics import METRICS, figures, prometheus, table
from safeconsumer.worker import Stats
from safeconsumer.worker.brakes import OWNERS
from tests.harness.listing import short
from tests.harness.metrics.monitoring import FILES

_OWNER = re.compile(r"\b([a-z]+):OWNER")
NAME = re.compile(r"[a-z][a-z_]*[a-z]")
FORBIDDEN = {
    *("owner_name", "reason", "scope", "hold", "hold_id", "member", "member_id"),
    *("host", "key", "offset", "error", "partition"),
}
# Events of level warning or error that have their own counter.
COUNTED = {
    *("control_records_skipped", "control_topic_reset", "gates_opened_unread"),
    *("commit_rejected", "work_dropped", "breaker_closed", "unread_records_deleted"),
}


@pytest.mark.parametrize("metric", METRICS, ids=short)
def test_metric_has_a_plain_name_and_bounded_labels(metric):
    assert NAME.fullmatch(metric.name)
    assert metric.meaning.endswith(".")
    assert not {one.name for one in metric.labels} & FORBIDDEN


def test_names_are_unique():
    names = [one.name for one in METRICS]
    assert len(names) == len(set(names))


def test_every_metric_in_the_table_is_exported():
    of_consumers = {one.name for one in table.of("consumer", "control")}
    assert set(figures._READ) == of_consumers
    assert set(prometheus._FIELDS) == {one.name for one in table.of("worker")}
    assert set(prometheus._FIELDS.values()) <= {one.name for one in fields(Stats)}


def test_owner_labels_in_the_table_match_the_code():
    (owners,) = [one for one in METRICS if one.name == "worker_pause_seconds_total"]
    assert set(OWNERS) == set(owners.labels[0].values)


def test_texts_for_operators_name_only_owner_kinds_that_exist():
    found = {one for text in FILES.values() for one in _OWNER.findall(text)}
    assert found <= set(KINDS)


def test_every_alarm_is_counted_once():
    """Each event of level warning or error counts as an alarm, or has a counter."""
    every = [getattr(events, name) for name in events.__all__]
    alarming = {
        one
        for one in every
        if isinstance(one, type)
        and issubclass(one, events.Event)
        and one.level in {"warning", "error"}
    }
    of_workers = {one.name for one in alarming if issubclass(one, events.WorkerEvent)}
    others = {one.name for one in alarming} - of_workers
    assert set(counts.ALARMS) == others - COUNTED
    assert set(counts.WORKER_ALARMS) == of_workers - COUNTED
