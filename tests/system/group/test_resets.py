"""Tests resets during which a broker is killed; the nightly test repeats this for minutes."""

import itertools
import random
import time

import pytest

from tests.harness.brokers.cluster import Cluster
from tests.harness.brokers.java import JavaBroker
from tests.harness.group.rounds import OF_A_CLUSTER, TARGETS, Rounds

pytestmark = pytest.mark.java_brokers

MINUTES = 5


@pytest.mark.contract("G10")
@pytest.mark.usefixtures("time_to_look")
def test_reset_is_applied_once_during_a_broker_restart(tmp_path):
    """The killed broker is the group's coordinator and the leader of all partitions."""
    chance = random.Random(3)  # noqa: S311 - a test draws
    with (
        JavaBroker() as broker,
        Rounds(broker, chance, "cooperative", tmp_path / "log") as rounds,
    ):
        result = rounds.play("broker", "offset")
    assert result.faults == []


@pytest.mark.nightly
@pytest.mark.contract("G10")
@pytest.mark.timeout(60 * MINUTES + 900)
@pytest.mark.usefixtures("time_to_look")
@pytest.mark.parametrize("assignor", ["eager", "cooperative"])
def test_reset_is_applied_once_during_a_coordinator_failover(
    tmp_path, assignor, record_property
):
    """The group's coordinator is killed during the reset, and another broker takes over."""
    chance = random.Random(assignor)  # noqa: S311 - a test draws
    end = time.monotonic() + 60 * MINUTES
    with (
        Cluster() as cluster,
        Rounds(cluster, chance, assignor, tmp_path / "log") as rounds,
    ):
        for number, kind in enumerate(itertools.cycle(OF_A_CLUSTER)):
            if number >= len(OF_A_CLUSTER) and time.monotonic() > end:
                break
            result = rounds.play(kind, chance.choice(TARGETS))
            record_property("round", str(result))
            assert result.faults == [], result
