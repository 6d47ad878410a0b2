"""The tutorial's tour of an operator's commands says what they say."""

import pytest

from tests.harness.brokers.java import JavaBroker
from tests.harness.group import tour

pytestmark = pytest.mark.java_brokers  # the names of topics are the page's


def test_the_tour_is_what_the_commands_say() -> None:
    """But for times; renew it with ``python -m tests.harness.group.tour --write``."""
    shown = tour.block(tour.PAGE.read_text("utf-8"))
    with JavaBroker() as broker, tour.toured(broker) as made:
        now = tour.told(shown, made.run)
    assert tour.lasting(now) == tour.lasting(shown)
