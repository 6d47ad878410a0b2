"""Tests the commands in the tutorial for operators."""

import pytest

from safeconsumer.testing import EmbeddedBroker
from tests.harness.group import tour

# The test needs a broker of its own, because the page uses fixed topic names.
pytestmark = pytest.mark.embedded_suffices


def test_tutorial_shows_the_output_of_its_commands():
    """Times may differ; ``python -m tests.harness.group.tour --write`` renews the output."""
    shown = tour.block(tour.PAGE.read_text("utf-8"))
    with EmbeddedBroker() as broker, tour.toured(broker) as made:
        now = tour.renewed(shown, made.run)
    assert tour.lasting(now) == tour.lasting(shown)
