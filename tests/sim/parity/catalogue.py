"""The scenarios that are played on both kinds of cluster, by their names."""

from collections.abc import Callable

from attrs import field, frozen

from tests.sim.parity.stages import CLIENTS, PROTOCOLS, Stage

Play = Callable[[Stage], None]


@frozen
class Scenario:
    """
    What is played, by both clients, with which protocols of groups.

    Attributes:
        play: the scenario.
        protocols: ``eager``, ``cooperative``, or both.
    """

    play: Play
    protocols: tuple[str, ...] = ("eager",)
    name: str = field(init=False)

    @name.default
    def _named(self):
        return self.play.__name__


SCENARIOS = {}


def _add(one):
    SCENARIOS[one.name] = one
    return one.play


def both(play):
    """Play it with both clients; groups, if any, are eager."""
    return _add(Scenario(play))


def in_groups(play):
    """Play it with both clients and both protocols."""
    return _add(Scenario(play, protocols=tuple(PROTOCOLS)))


def cases():
    """Return every scenario with each client and protocol: the ids of tests."""
    return [
        (one.name, client, protocol)
        for one in SCENARIOS.values()
        for client in CLIENTS
        for protocol in one.protocols
    ]
