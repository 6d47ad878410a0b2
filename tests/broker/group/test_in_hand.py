"""Tests that ``pause --wait`` waits for handlers in other processes."""

import time
from pathlib import Path

import pytest
from attrs import frozen

from safeconsumer.cli.errors import Status
from safeconsumer.worker import Worker
from tests.harness.group.team import Team, run
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Running

pytestmark = pytest.mark.embedded_suffices

RECORDS = 60  # in each partition; handling them takes a few seconds


@frozen
class Writing:
    """A handler that waits 50 ms for each record and then writes its offset to a file."""

    folder: Path

    def __call__(self, records, _context=None):
        for record in records:
            time.sleep(0.05)
            with (self.folder / str(record.partition)).open("a") as file:
                file.write(f"{record.offset}\n")

    def written(self, partition):
        path = self.folder / str(partition)
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.contract("G8")
def test_handler_processes_stop_writing_before_the_group_counts_as_quiet(
    kafka_broker, tmp_path
):
    """The other partition is not held and its records are still handled."""
    handle = Writing(tmp_path)
    with Team(kafka_broker, partitions=2, records=RECORDS) as team:
        consumer = team.subscribed(max_poll_records=RECORDS)
        worker = Worker(consumer, handle, executor="process", concurrency=2, batch=20)
        running = Running(worker)
        try:
            wait_for(lambda: len(handle.written(0)) > 2, "the first records")
            asked = ("--group", team.group, "--reason", "x", "--wait", "60s")
            ended = run(team, "pause", f"{team.topic}:0", *asked)
            assert ended.exit_code == Status.DONE, ended.output
            before = handle.written(0)
            team.produce(5)
            wait_for(lambda: len(handle.written(1)) == RECORDS + 5, "the other's last")
            assert handle.written(0) == before
        finally:
            running.end()
