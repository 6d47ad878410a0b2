"""The parity scenarios with either client, in the simulated world."""

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from tests.sim.parity.playing import simulated_facts
from tests.sim.parity.stages import cases, common_cases

# Scenarios in which our class differs, by the promise that requires the difference.
OTHERWISE = {
    "P4, P5: all or nothing, and by Kafka's error": (
        "a_pause_of_an_unassigned_partition",
    ),
    "P16: the rest of a held partition is delivered under any reset policy": (
        "retention_passes_a_held_position_to_the_latest",
    ),
    "P11: a fenced member raises": ("a_static_member_that_was_fenced",),
}
DIFFERENT = {name for names in OTHERWISE.values() for name in names}


# Outside the nightly run, each scenario has one of its protocols, alternately.
PLAYED = [
    pytest.param(*case, marks=() if case in common_cases() else pytest.mark.nightly)
    for case in cases()
]


@pytest.mark.contract("P13")
@pytest.mark.parametrize(("name", "protocol"), PLAYED)
def test_scenario_yields_the_same_observations_with_either_client(name, protocol):
    """P13: ``OTHERWISE`` lists the exceptions."""
    ours, stock = (
        simulated_facts(name, one, protocol) for one in (SafeConsumer, KafkaConsumer)
    )
    assert stock, "it has seen nothing"
    assert (ours == stock) == (name not in DIFFERENT), (ours, stock)
