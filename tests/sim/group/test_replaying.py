"""A replay of dead letters that is told to stop."""

import threading

import pytest

from safeconsumer.cli.letters import Letters, Wanted
from safeconsumer.cli.replaying import Replay
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


@pytest.mark.contract("P20")
@simulated(seeds=1)
def test_a_replay_commits_the_epoch_of_what_it_has_passed(lab: Lab) -> None:
    """Also a second one, which passes nothing: it commits where it begins."""
    (tp,) = lab.topic("t.dlq", records=3)
    lab.cluster.lead("t.dlq", 0, 1)
    lab.append(tp, 2)
    for left in (5, 0):
        there = Letters(lab.connection, "t.dlq", group="r")
        replay = Replay(there, Wanted(), None, lambda _: frozenset({0}), len)
        replay.run()
        there.consumer.close()
        committed = lab.cluster.committed("r")["t.dlq", 0]
        assert (replay.left, committed.offset, committed.leader_epoch) == (left, 5, 1)
