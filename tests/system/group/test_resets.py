"""G10 where a broker dies in the middle; each night plays many such rounds, of all kinds."""

import random

import pytest

from tests.harness.brokers.java import JavaBroker
from tests.harness.group.rounds import Rounds

pytestmark = pytest.mark.java_brokers


@pytest.mark.contract("G10")
@pytest.mark.usefixtures("time_to_look")
def test_a_group_is_moved_once_while_its_broker_is_killed_and_started_again(tmp_path):
    """The coordinator, the leader and the holds topic are all on that broker."""
    chance = random.Random(3)  # noqa: S311 - a test draws
    with (
        JavaBroker() as broker,
        Rounds(broker, chance, "cooperative", tmp_path / "log") as rounds,
    ):
        result = rounds.play("broker", "offset")
    assert result.faults == []
