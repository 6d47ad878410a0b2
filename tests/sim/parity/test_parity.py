"""The scenarios of the parity come to their ends in the simulated world."""

import pytest

from tests.sim.parity.catalogue import cases
from tests.sim.parity.playing import simulated_facts


@pytest.mark.parametrize(("name", "client", "protocol"), cases())
def test_a_scenario_in_the_simulated_world(
    name: str, client: str, protocol: str
) -> None:
    """It comes to its end, and has seen something."""
    assert simulated_facts(name, client, protocol)
