"""Lets the audit judge journals from workers whose handlers run in processes."""

from collections import Counter

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer.journal.writer import JournalWriter
from safeconsumer.worker import Commit, DeadLetter, Drain, Limits, Retry
from tests.broker.worker.handlers import Recording
from tests.harness.audit.journals import read
from tests.harness.waiting import wait_for
from tests.harness.worker.journals import broken

pytestmark = pytest.mark.any_broker

QUICK = Retry(attempts=2, first=0.01)
ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}


class Journals:
    """A topic, and workers that read it and write journals."""

    def __init__(self, lab, folder):
        self._lab = lab
        self.folder = folder / "journals"
        lab.new_topic(partitions=2)

    def run(self, handle, *, protocol="eager", **settings):
        """Run a worker that writes a journal of its own."""
        consumer = self._lab.consumer(
            journal=self.folder,
            max_poll_records=20,
            partition_assignment_strategy=[ASSIGNORS[protocol]],
        )
        usual = {"concurrency": 2, "order": "key", "retry": QUICK}
        return self._lab.run(
            handle, consumer, executor="process", **{**usual, **settings}
        )

    def produce(self, values):
        """Write the values with four keys to both partitions, and journal the offsets."""
        count = self._lab.produce({0: values, 1: values}, key=_key)
        producer = JournalWriter(self.folder, member="producer")
        for number in (0, 1):
            place = {"tp": f"{self._lab.topic}:{number}", "first": 0}
            producer.write("acked", {**place, "last": len(values) - 1})
        return count

    def ending(self, policy):
        """Return the worker options that apply this policy to records that fail for good."""
        if policy == "skip":
            return {"on_exhausted": "skip"}
        topic = self._lab.other_topic()
        letters = DeadLetter(self._lab.producer, topic, max_ratio=None)
        return {"dead_letter": letters}

    def entries(self):
        paths = set(self.folder.glob("*.journal")) - {*self.folder.glob("producer*")}
        return [one for path in paths for one in read(path).lines]


@pytest.fixture
def journals(lab, tmp_path):
    return Journals(lab, tmp_path)


def _key(number):
    return b"%d" % (number % 4)


@pytest.mark.contract("W3", "W4", "W5", "W10")
@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
def test_audit_passes_a_worker_with_processes_that_is_held_repeatedly(
    lab, journals, tmp_path, policy
):
    count = journals.produce(["", "fail", "fail=1", "reject", "later=0.02"] * 16)
    running = journals.run(Recording(tmp_path), **journals.ending(policy))
    for part in range(5):
        running.wait_done(part * count // 5)
        with running.worker.consumer.held(lab.topic):
            wait_for(lambda: not running.worker.stats().running, "them to end")
    running.wait_done(count)
    running.end()
    assert lab.committed() == {0: 80, 1: 80}
    assert broken(journals.folder) == set()
    counts = Counter(entry.event for entry in journals.entries())
    assert counts["completed"] == 2 * count // 5
    assert counts["handle"] == counts["handled"]


@pytest.mark.contract("W4", "W6", "W7")
@pytest.mark.parametrize("protocol", list(ASSIGNORS))
def test_audit_passes_workers_with_processes_that_join_and_leave(
    lab, journals, tmp_path, protocol
):
    values = ["fail", "", "reject", "later=0.02", "", "fail=1", "", ""] * 20
    count = journals.produce(values)
    options = {
        "protocol": protocol,
        "limits": Limits(records=40),
        "commit": Commit(every=0.1),
        "drain": Drain(revoke=0.2),
        "on_exhausted": "skip",
    }
    if protocol == "eager":
        options |= journals.ending("dead_letter")
    handler = Recording(tmp_path)
    first = journals.run(handler, **options)
    first.wait_done(30)
    second = journals.run(handler, **options)
    wait_for(second.worker.consumer.assignment, "the second to join")
    first.worker.stop(drain=False)
    first.wait_end()
    wait_for(
        lambda: lab.committed() == {0: len(values), 1: len(values)},
        f"{count} records are committed",
        limit=60.0,
    )
    second.end()
    assert broken(journals.folder) == set()


def test_record_of_a_killed_process_is_handled_again_before_later_ones(
    lab, journals, tmp_path
):
    count = journals.produce([*[""] * 30, "kill", *[""] * 9])
    running = journals.run(Recording(tmp_path), order="partition")
    running.wait_done(count)
    running.end()
    assert lab.committed() == {0: 40, 1: 40}
    assert broken(journals.folder) == set()
    handed = [one for one in journals.entries() if one.event == "handled"]
    assert [one["offset"] for one in handed if not one["ok"]] == [30, 30]
