"""The simulated cluster does what Apache Kafka does, as clients see it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sim.parity.playing import real_facts, simulated_facts
from tests.sim.parity.stages import cases

_BESIDE = 6  # scenarios on the real cluster at a time; they mostly wait


@pytest.mark.contract("P13")
@pytest.mark.real_broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", ["ours", "stock"])
def test_apache_kafka_does_the_same(kafka_broker, client):
    played = [case for case in cases() if case[1] == client]
    with ThreadPoolExecutor(_BESIDE) as pool:
        real = pool.map(lambda case: real_facts(kafka_broker, *case), played)
        simulated = [simulated_facts(*case) for case in played]
        pairs = list(zip(played, simulated, real, strict=True))
    different = [
        f"{'-'.join(case)}: simulated {simulated}, Kafka {real}"
        for case, simulated, real in pairs
        if simulated != real
    ]
    assert not different, "\n".join(different)
