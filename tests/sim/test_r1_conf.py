"""Passes: what is paused beside another owner's pause comes once after the resume (cooperative)."""
from typing import Any
import pytest
from safeconsumer import SafeConsumer, events
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_ways, COOPERATIVE

@both_ways
@pytest.mark.parametrize("poll_s", [0.01, 0.1])
@simulated(seeds=12)
def test_no_dups(lab: Lab, how: str, poll_s: float) -> None:
    tps = lab.topic("t", 4, records=20)
    lost = []
    told: list[Any] = []
    r = Reader(lab, SafeConsumer, "t", how=how, assignor=COOPERATIVE, hooks=[told.append], metadata_max_age_ms=1000)
    r.take(20)
    r.consumer.commit()
    r.consumer.pause("t", owner="other")
    r.consumer.pause(*(r.consumer.assignment() - r.consumer.paused()))
    other = Reader(lab, SafeConsumer, "t", assignor=COOPERATIVE, client_id="b")
    end = lab.now + 60
    while not (0 < len(r.consumer.assignment()) < 4 and other.consumer.assignment()):
        r.poll(poll_s); other.poll(poll_s); assert lab.now < end
    for _ in range(10): r.poll(poll_s)
    other.consumer.close()
    r.owns(tps, each=poll_s)
    n = len(r.log)
    r.consumer.resume("t", owner="other")
    for _ in range(5): r.poll(poll_s)
    assert len(r.log) == n
    mine = sorted(r.consumer.assignment())
    r.consumer.resume(mine[0])
    for _ in range(5):
        r.poll(poll_s); lab.append(mine[0], 1)
    r.consumer.resume(*mine[1:])
    for _ in range(100): r.poll(poll_s)
    for tp in tps:
        offs = r.offsets(tp)
        assert len(offs) == len(set(offs)), (tp, offs, told)
