"""A replay of dead letters: stopping, truncated logs, failing sends."""

import itertools
import threading
from types import SimpleNamespace

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.letters import opened
from safeconsumer.cli.replaying import Replay
from safeconsumer.worker import DeadLetter, Failure
from safeconsumer.worker.dead_letters import sink_of
from safeconsumer.worker.letters_format import Letter
from tests.sim.playing import simulated


@simulated(seeds=1, nightly=3)
def test_replay_stops_within_a_second_while_no_broker_answers(lab):
    """The replay does not wait half a minute for the next fetch."""
    lab.topic("t.dlq", records=3)
    replay = Replay(lambda _: frozenset({0}), len)
    with opened(lab.connection, "t.dlq") as there:
        fault = lab.cluster.fail("Fetch", is_held=True)
        pieces = there.read(is_over=replay.stopping.is_set)
        work = threading.Thread(target=lambda: [*replay.sendable(pieces)])
        work.start()
        lab.sleep(2)
        began = lab.now
        replay.stopping.set()
        work.join()
        assert lab.now - began <= 1.0
        assert (replay.is_cut, replay.selected) == (True, 0)
        fault.end()


@pytest.mark.contract("P20")
@simulated(seeds=1)
def test_replay_commits_the_leader_epoch(lab):
    """A replay that finds no letters commits the epoch, too, with its start offset."""
    (tp,) = lab.topic("t.dlq", records=3)
    lab.cluster.lead("t.dlq", 0, 1)
    lab.append(tp, 2)
    for left in (5, 0):
        replay = Replay(lambda _: frozenset({0}), len)
        with opened(lab.connection, "t.dlq", group="r") as there:
            replay.run(there.read(), None, there.commit)
        committed = lab.cluster.committed("r")["t.dlq", 0]
        assert (replay.left, committed.offset, committed.leader_epoch) == (left, 5, 1)


@pytest.mark.contract("P20")
@simulated(seeds=1)
def test_replay_after_a_truncation_replays_the_new_leaders_letters(lab):
    (tp,) = lab.topic("t.dlq", records=5)
    left = []
    for _ in range(2):
        replay = Replay(lambda _: frozenset({0}), len)
        with opened(lab.connection, "t.dlq", group="r") as there:
            replay.run(there.read(), None, there.commit)
        left.append(replay.left)
        lab.cluster.truncate(*tp, 3)
        lab.append(tp, 4)
    assert left == [5, 4]


class FailingProducer:
    """A producer whose sends succeed, except those with the numbers in ``failing``."""

    def __init__(self, failing):
        self._failing = failing
        self._sent = itertools.count()

    def send(self, *_, **__):
        number = next(self._sent)

        def get(timeout):
            if number in self._failing:
                raise KafkaTimeoutError(timeout)

        return SimpleNamespace(get=get)


def test_replay_whose_reading_fails_commits_the_sent_letters():
    """The next run does not send these letters again."""
    record = SimpleNamespace(topic="t.dlq", partition=0, offset=7, leader_epoch=-1)
    letter = Letter(record=record, topic="t", partition=0, key=b"k")

    def pieces():
        yield [letter]
        message = "the broker stopped answering"
        raise CommandError(message)

    replay, committed = Replay(lambda _: frozenset({0}), len), []
    with pytest.raises(CommandError, match="stopped answering"):
        replay.run(pieces(), FailingProducer(()), committed.append)
    assert replay.sent == 1
    assert [one.offset for one in committed[-1].values()] == [8]


@pytest.mark.parametrize("failing", [(0, 2), (1, 2), (2,)], ids=str)
@simulated(seeds=1)
def test_replay_commits_up_to_the_first_letter_that_failed(lab, failing):
    """Otherwise letters would be lost, as the next replay starts at the committed offset."""
    lab.topic("t", records=3)
    lab.topic("t.dlq")
    producer = KafkaProducer(**lab.connection)
    send = sink_of(DeadLetter(producer, "t.dlq"), "billing")
    record = {"topic": "t", "partition": 0, "key": b"k", "value": b"v", "headers": []}
    for offset in range(3):
        letter = SimpleNamespace(offset=offset, timestamp=0, **record)
        sent = send(letter, Failure(error=ValueError(), attempts=1))
        sent.get(30)
    producer.close()
    replay = Replay(lambda _: frozenset({0}), len)
    with (
        opened(lab.connection, "t.dlq", group="r") as there,
        pytest.raises(KafkaTimeoutError),
    ):
        replay.run(there.read(), FailingProducer(failing), there.commit)
    assert lab.cluster.committed("r")["t.dlq", 0].offset == failing[0]
