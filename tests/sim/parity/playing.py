"""Runs a scenario on one kind of cluster, and returns its facts."""

from tests.sim.lab import play
from tests.sim.parity import groups, reading  # noqa: F401 - these modules add their scenarios
from tests.sim.parity.stages import SCENARIOS, RealStage, SimStage


def simulated_facts(name, kind, protocol):
    """Run a scenario in a world; return its facts."""
    return play(lambda lab: _played(SimStage(lab, kind, protocol), name))


def real_facts(broker, name, kind, protocol):
    """Run a scenario on a real cluster; return its facts, or the error that it raised."""
    try:
        return _played(RealStage(broker, kind, protocol), name)
    except Exception as error:  # noqa: BLE001 - an error is a difference like any other
        return {"raised": repr(error)}


def _played(stage, name):
    scenario, _ = SCENARIOS[name]
    with stage:
        scenario(stage)
        return stage.facts
