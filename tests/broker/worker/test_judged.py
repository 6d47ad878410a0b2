"""Workers that journal their handlers, judged by the audit: clean, or caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.audit.checker import Settings, check, findings_of
from safeconsumer.audit.handling import Handling, skips_hook
from safeconsumer.audit.journal import Journal, read
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.worker import DeadLetter, Retry
from tests.broker.worker.handlers import Recording
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker

QUICK = Retry(attempts=2, first=0.01)
RECORDS = 40


class Journaled:
    """A worker of the lab that keeps a journal, and what the audit says of it."""

    def __init__(self, lab: Lab, folder: Path, *, asks_what_runs: bool = True) -> None:
        self._lab = lab
        self._folder = folder
        self._asks = asks_what_runs
        lab.new_topic(partitions=2)
        self.writer = JournalWriter(folder, member="worker", group=lab.group)
        self.consumer = lab.consumer(journal=self.writer)

    def run(
        self,
        handle: Callable[..., Any],
        *,
        order: Any = "key",  # noqa: ANN401 - the worker's names
        said: str = "key",
        letters: str | None = None,
        **settings: Any,  # noqa: ANN401 - the worker's
    ) -> Running:
        handling = Handling(self.writer, order=said)
        if letters is not None:
            producer = handling.letters(self._lab.producer)
            settings["dead_letter"] = DeadLetter(producer, letters, max_ratio=None)
        running = self._lab.run(
            handling.around(handle),
            self.consumer,
            order=order,
            retry=QUICK,
            on_event=skips_hook(self.writer),
            **settings,
        )
        if self._asks:
            handling.watch(running.worker.running)
        return running

    def produce(self, values: list[str]) -> int:
        """Write the values to both partitions, four keys each, and say so in a journal."""
        count = self._lab.produce({0: values, 1: values}, key=_key)
        producer = JournalWriter(self._folder, member="producer")
        for number in (0, 1):
            said = {"tp": f"{self._lab.topic}:{number}", "first": 0}
            producer.write("acked", {**said, "last": len(values) - 1})
        return count

    def journal(self) -> Journal:
        (path,) = self._folder.glob("worker*.journal")
        return read(path)

    def broken(self) -> set[str]:
        """Return which checks found something."""
        journals = [read(path) for path in self._folder.glob("*.journal")]
        assumed = Settings(is_drained=True, patience=60)
        found = findings_of(check(journals, assumed))
        return {one.check for several in found.values() for one in several}


@pytest.fixture
def journaled(lab: Lab, tmp_path: Path) -> Journaled:
    """Make a worker's consumer with a journal."""
    return Journaled(lab, tmp_path / "journals")


def _key(number: int) -> bytes:
    return b"%d" % (number % 4)


def _mixed(count: int) -> list[str]:
    orders = {3: "fail", 5: "fail=1", 7: "later=0.02", 9: "reject"}
    return [
        orders.get(number % 10, f"until=round{number // 10}") for number in range(count)
    ]


@pytest.mark.contract("W5", "W10")
@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
def test_a_worker_under_holds_is_clean(
    lab: Lab, journaled: Journaled, tmp_path: Path, policy: str
) -> None:
    """W4, W5, W7, W10: with retries, poison, rejected records and holds all along."""
    count = journaled.produce(_mixed(RECORDS))
    recording = Recording(tmp_path)
    running = journaled.run(
        recording,
        letters=lab.other_topic() if policy == "dead_letter" else None,
        on_exhausted="skip",
    )
    for number in range(RECORDS // 10):
        wait_for(lambda: running.worker.stats().running, "handlers that wait")
        with journaled.consumer.held(lab.topic, owner="alice"):
            (tmp_path / f"round{number}").touch()
            wait_for(lambda: not running.worker.stats().running, "them to end")
    running.wait_done(count)
    running.end()
    assert lab.committed() == {0: RECORDS, 1: RECORDS}
    assert journaled.broken() == set()
    events = [entry.event for entry in journaled.journal().entries]
    assert events.count("running") > 3
    assert events.count("completed") == count // 5
    assert events.count("handle") == events.count("handled") > count


@pytest.mark.parametrize("asks", [True, False])
def test_what_had_begun_when_the_hold_came_is_no_start_under_it(
    lab: Lab, tmp_path: Path, *, asks: bool
) -> None:
    """
    W10: the handler's first line may run after the pause returned that it preceded.

    1. A place looks for holds, finds none, and calls the handler. 2. Another thread
    pauses; the pause returns and is journaled. 3. The handler writes that it begins.
    Without what ran at 2 nobody could tell it from a start under the hold.
    """
    journaled = Journaled(lab, tmp_path / "journals", asks_what_runs=asks)
    journaled.produce(["", ""])
    writing, first = journaled.writer.write, iter([True])

    def write(event: str, fields: Any) -> None:  # noqa: ANN401 - a mapping
        if event == "handle" and next(first, False):
            journaled.consumer.pause(f"{fields['tp']}")
        writing(event, fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journaled.writer, "write", write)
        running = journaled.run(Recording(tmp_path))
        running.wait_done(3)
        journaled.consumer.resume_all(owner="app")
        running.wait_done(4)
        running.end()
    assert journaled.broken() == (set() if asks else {"W10"})


def test_a_worker_without_order_is_found(journaled: Journaled, tmp_path: Path) -> None:
    """W7, planted: it was told to keep no order, and is judged by keys."""
    count = journaled.produce(["until=second", "", "", "", "touch=second"])
    running = journaled.run(Recording(tmp_path), order="unordered")
    running.wait_done(count)
    running.end()
    assert journaled.broken() == {"W7"}
