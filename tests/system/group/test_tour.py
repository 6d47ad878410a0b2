"""The tutorial's tour of an operator's commands."""

import pytest

from safeconsumer.testing import EmbeddedBroker
from tests.harness.group import tour

# The test has its own broker, as the topics' names are the page's.
pytestmark = pytest.mark.embedded_suffices


def test_tour_matches_the_output_of_the_commands():
    """Times may differ; ``python -m tests.harness.group.tour --write`` renews the tour."""
    shown = tour.block(tour.PAGE.read_text("utf-8"))
    with EmbeddedBroker() as broker, tour.toured(broker) as made:
        now = tour.renewed(shown, made.run)
    assert tour.lasting(now) == tour.lasting(shown)
