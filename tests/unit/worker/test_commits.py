"""Tests the lag of commits, and the time since the first failed commit."""

from types import SimpleNamespace

import pytest
from kafka.errors import KafkaError

from safeconsumer.worker import Commit
from safeconsumer.worker.kept import KeptRecords
from safeconsumer.worker.leaving import Commits
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Progress
from tests.harness.holds.lab import Clock
from tests.harness.worker.desk import TP


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client():
    """Return a client for which a test defines the results of commits."""
    return SimpleNamespace()


@pytest.fixture
def commits(client, clock):
    """Return a ``Commits`` object for a client that has not committed any offset yet."""
    return Commits(client, KeptRecords(clock), Commit(), lambda *_, **__: None, clock)


class Forgets(Epoch):
    """An ownership whose committed offset is reset as soon as it has been read once."""

    @property
    def committed(self):
        """Return the committed offset once, and -1 afterwards."""
        found, self.__dict__["floor"] = self.__dict__["floor"], -1
        return int(found)

    @committed.setter
    def committed(self, floor):
        self.__dict__["floor"] = floor


def test_lag_is_zero_if_a_reset_happens_while_the_lag_is_computed(commits):
    commits._kept.epochs[TP] = epoch = Forgets(TP, 1, 1, 0, Progress(7), 0.0)
    epoch.committed = 2
    assert commits.lag() == 5
    assert commits.lag() == 0


def test_failing_seconds_are_measured_from_the_first_failed_commit(
    commits, client, clock
):
    """The time is 0 again once a commit succeeds or no offset remains to be committed."""
    epoch = commits._kept.open(TP, 1, 0, 7)

    def refuse(*_):
        raise KafkaError

    client.commit = refuse
    assert commits.failing() == 0
    commits.now(seconds=1.0)
    clock.now += 100.0
    commits.now(seconds=1.0)
    assert commits.failing() == 100.0
    assert commits.lag() == 0
    commits._kept.close(epoch)
    clock.now += 100.0
    commits.turn()
    assert commits.failing() == 0


def test_late_response_to_an_old_commit_keeps_the_newer_offset(commits, client, clock):
    """Otherwise a committed offset would count as lag, and would be committed again."""
    sent = []
    client.commit_soon = lambda marks, then: sent.append((marks, then))
    epoch = commits._kept.open(TP, 1, 0, 0)
    epoch.committed = 0
    for offset in (3, 7):
        epoch.progress.reach(offset)
        clock.now += 100.0  # the client stops waiting for the first response
        commits.turn()
    assert [marks[TP].offset for marks, _ in sent] == [3, 7]
    for _, then in reversed(sent):
        then(None)
    assert (epoch.committed, commits.lag()) == (7, 0)
    clock.now += 100.0
    commits.turn()
    assert len(sent) == 2
