"""What a worker measures, and how it is told."""

import pytest
from kafka.errors import KafkaError

from safeconsumer.worker import Commit, Limits
from safeconsumer.worker.brakes import BACKPRESSURE, DRAIN, Brakes
from safeconsumer.worker.durations import BOUNDS, Durations
from safeconsumer.worker.kept import Kept
from safeconsumer.worker.leaving import Commits
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Progress
from tests.harness.worker.fake_client import EVERY, Clock, FakeClient


def test_durations_are_counted_by_their_mean():
    """Each of a hand-over as an even part; a bound belongs to what is below it."""
    durations = Durations()
    durations.add(0.4, 8)
    durations.add(0.3, 1)
    durations.add(1000.0, 1)
    taken = durations.histogram()
    assert (taken.count, taken.total) == (10, 1000.7)
    counted = dict(zip((*BOUNDS, None), taken.counts, strict=True))
    assert {bound: n for bound, n in counted.items() if n} == {0.05: 8, 0.5: 1, None: 1}


class Works:
    """Work that never moves."""

    def has_waiting(self, _epoch):
        return True

    def is_starving(self, _epoch):
        return False


def test_pauses_are_timed_by_their_owner():
    """While something is held in its name; what a handler's thread lifts ends there."""
    clock = Clock()
    client = FakeClient(clock, most=4)
    kept = Kept(clock)
    brakes = Brakes(client, kept, Limits(records=4), clock)
    brakes.work = Works()
    client.log[EVERY[0]] = 4
    client.rebalance(EVERY[0])
    while not (polled := client.poll(0.1, 4)):
        pass
    kept.admit(kept.open(EVERY[0], 1, 0, 0), polled[EVERY[0]])
    brakes.place(is_draining=True)
    clock.now += 2.0
    brakes.place(is_draining=False)
    clock.now += 1.0
    kept.records = 0
    kept.tell_low()
    clock.now += 5.0
    brakes.place(is_draining=False)
    took = {
        owner: seconds for owner, seconds in brakes.pause_seconds.items() if seconds
    }
    assert took == {BACKPRESSURE: 3.0, DRAIN: 2.0}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def commits(clock):
    """Make the commits of a client, which hold nothing yet."""
    client, kept = FakeClient(clock, most=4), Kept(clock)
    return Commits(client, kept, Commit(), lambda *_, **__: None, clock)


class Forgets(Epoch):
    """An ownership whose floor the polling thread forgets once it was looked at."""

    @property
    def committed(self):
        """What is committed, the first time."""
        found, self.__dict__["floor"] = self.__dict__["floor"], -1
        return int(found)

    @committed.setter
    def committed(self, floor):
        self.__dict__["floor"] = floor


def test_a_position_that_is_reset_while_the_lag_is_counted(commits):
    """A floor that is gone by the second look counts for nothing."""
    commits._kept.epochs[EVERY[0]] = epoch = Forgets(
        EVERY[0], 1, 1, 0, Progress(7), 0.0
    )
    epoch.committed = 2
    assert commits.lag() == 5
    assert commits.lag() == 0


def test_for_how_long_no_commit_goes_through(commits, clock):
    """
    From the first that failed, until one goes through or nothing is left to commit.

    Also where the first of an ownership fails, so that nothing of it is handled and no
    offset is complete.
    """
    epoch = commits._kept.open(EVERY[0], 1, 0, 7)

    def refuse(*_):
        raise KafkaError

    commits._client.commit = refuse
    assert commits.failing() == 0
    commits.now()
    clock.now += 100.0
    commits.now()
    assert commits.failing() == 100.0
    assert commits.lag() == 0
    commits._kept.close(epoch)
    clock.now += 100.0
    commits.turn()
    assert commits.failing() == 0


def test_a_late_answer_to_an_old_commit_takes_no_newer_one_back(commits, clock):
    """What is committed already would count as lag, and be committed again."""
    sent = []
    commits._client.commit_soon = lambda marks, then: sent.append((marks, then))
    epoch = commits._kept.open(EVERY[0], 1, 0, 0)
    epoch.committed = 0
    for offset in (3, 7):
        epoch.progress.reach(offset)
        clock.now += 100.0  # the answer to the first is given up
        commits.turn()
    assert [marks[EVERY[0]].offset for marks, _ in sent] == [3, 7]
    for _, then in reversed(sent):
        then(None)
    assert (epoch.committed, commits.lag()) == (7, 0)
    clock.now += 100.0
    commits.turn()
    assert len(sent) == 2
