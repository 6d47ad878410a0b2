"""A replay of dead letters that is told to stop, or to go slowly."""

import threading
from types import SimpleNamespace

from safeconsumer.cli.letters import Letters, Wanted
from safeconsumer.cli.replaying import Replay, producer_of
from safeconsumer.worker import DeadLetter, Failure
from safeconsumer.worker.dead_letters import sink_of
from tests.sim.lab import Lab
from tests.sim.playing import simulated


@simulated(seeds=2)
def test_a_replay_stops_while_no_broker_answers(lab: Lab) -> None:
    """It noticed a SIGTERM only after the next fetch, half a minute later."""
    lab.topic("t.dlq", records=3)
    there = Letters(lab.connection, "t.dlq")
    said: list[str] = []
    replay = Replay(there, Wanted(), None, lambda _: frozenset({0}), said.append)
    fault = lab.cluster.fail("Fetch", is_held=True)
    work = threading.Thread(target=lambda: [*replay.chosen()])
    work.start()
    lab.sleep(2)
    began = lab.now
    replay.stopping.set()
    work.join()
    assert lab.now - began <= 1.0
    assert (replay.is_cut, replay.selected) == (True, 0)
    fault.end()
    there.consumer.close()


@simulated(seeds=2)
def test_a_rate_spaces_letters_and_shortens_what_is_sent_again(lab: Lab) -> None:
    """A run that ends in the middle has committed but for a second's letters."""
    (tp,) = lab.topic("t.dlq")
    lab.topic("t")
    producer = producer_of(lab.connection)
    dead = sink_of(DeadLetter(producer, "t.dlq"), "billing")
    for offset in range(9):
        fields = {"timestamp": 0, "headers": [], "key": b"k", "value": b"v"}
        record = SimpleNamespace(topic="t", partition=0, offset=offset, **fields)
        dead(record, Failure(error=ValueError(), attempts=1))
    producer.flush()
    there = Letters(lab.connection, "t.dlq", "again")
    told: list[str] = []
    partitions = {"t": frozenset({0})}
    replay = Replay(there, Wanted(), producer, partitions.get, told.append, rate=2.0)
    work = threading.Thread(target=replay.run)
    work.start()
    lab.sleep(2.2)  # five have begun, in windows of two
    assert (replay.selected, replay.sent, lab.committed(tp, "again")) == (5, 4, 4)
    replay.stopping.set()
    work.join()
    assert (replay.is_cut, replay.sent, lab.committed(tp, "again")) == (True, 5, 5)
    there.consumer.close()
    producer.close()
