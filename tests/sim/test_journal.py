"""``SafeConsumer(journal=...)``: what right programs do is judged right, whatever they do."""

from pathlib import Path
from typing import Any

from safeconsumer import SafeConsumer
from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.journal import Entry, Journal, read
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated


def journals(folder: Path) -> list[Journal]:
    return [read(path) for path in folder.glob("*.journal")]


def of(folder: Path, *events: str) -> list[Entry]:
    return [
        entry
        for journal in journals(folder)
        for entry in journal.entries
        if entry.event in events
    ]


def faults(folder: Path, **settings: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - as they are
    verdicts = check(journals(folder), Settings(**settings))
    assert verdicts
    return [
        (one.check, one.evidence)
        for verdict in verdicts.values()
        for one in verdict.findings
    ]


@simulated(seeds=1)
def test_a_consumer_that_gets_nothing_writes_nothing(lab: Lab, tmp_path: Path) -> None:
    """A thousand polls that return nothing leave no entry."""
    (tp,) = lab.topic("t")
    consumer = SafeConsumer(**lab.settings(journal=tmp_path))
    consumer.assign([tp])
    while not of(tmp_path, "begins"):
        consumer.poll(100)
    before = len(journals(tmp_path)[0].entries)
    for _ in range(1000):
        assert consumer.poll(10) == {}
    assert len(journals(tmp_path)[0].entries) == before
    consumer.close()


@simulated(seeds=2)
def test_a_commit_is_judged_by_the_position_at_its_call(
    lab: Lab, tmp_path: Path
) -> None:
    """``commit_async()``, and then back to read a record again: no position was passed."""
    (tp,) = lab.topic("t", records=50)
    settings = {"group_id": GROUP, "max_poll_records": 10, "journal": tmp_path}
    consumer = SafeConsumer(**lab.settings(**settings))
    consumer.assign([tp])
    for _ in range(3):
        while not (polled := consumer.poll(500)):
            pass
        consumer.commit_async()
        consumer.seek(tp, polled[tp][-1].offset)
    consumer.poll(500)
    consumer.close()
    assert lab.committed(tp) == 28
    assert faults(tmp_path) == []
    calls = [one["op"] for one in of(tmp_path, "call") if one["op"] != "poll"]
    assert calls == ["commit", "seek"] * 3
    assert [one["ok"] for one in of(tmp_path, "return")] == [None] * 6
