"""Plays a scenario on one kind of cluster, and returns its facts."""

from tests.sim.lab import play
from tests.sim.parity import groups, reading  # noqa: F401 - they add theirs
from tests.sim.parity.stages import CLIENTS, SCENARIOS, RealStage, SimStage


def simulated_facts(name, client, protocol):
    """Play a scenario in a world; return its facts."""

    def main(lab):
        with SimStage(lab, CLIENTS[client], protocol) as stage:
            SCENARIOS[name][0](stage)
            return stage.facts

    return play(main)


def real_facts(broker, name, client, protocol):
    """Play a scenario on a real cluster; return its facts, or the error that it raised."""
    try:
        with RealStage(broker, CLIENTS[client], protocol) as stage:
            SCENARIOS[name][0](stage)
            return stage.facts
    except Exception as error:  # noqa: BLE001 - a difference like others
        return {"raised": repr(error)}
