"""The scenarios that are played on both kinds of cluster, by their names."""

from tests.sim.parity.stages import CLIENTS, PROTOCOLS

SCENARIOS = {}
"""By its name, what is played, and with which protocols of groups."""


def both(play, protocols=("eager",)):
    """Play it with both clients; groups, if any, are eager."""
    SCENARIOS[play.__name__] = play, protocols
    return play


def in_groups(play):
    """Play it with both clients and both protocols."""
    return both(play, tuple(PROTOCOLS))


def cases():
    """Return every scenario with each client and protocol: the ids of tests."""
    return [
        (name, client, protocol)
        for name, (_, protocols) in SCENARIOS.items()
        for client in CLIENTS
        for protocol in protocols
    ]
