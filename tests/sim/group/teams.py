"""A team and its operator's commands in virtual time."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from safeconsumer.cli import connection
from tests.harness.group.team import Team
from tests.sim.lab import Lab
from tests.sim.playing import simulated


class Broker:
    """A simulated cluster as tests of any broker take it."""

    kind = "embedded"
    group_config: Mapping[str, Any] = {}

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.client_config = lab.connection

    def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.lab.cluster.create_topic(name, partitions, settings or {})

    def delete_topic(self, name: str) -> None:
        self.lab.cluster.delete_topic(name)


def played(
    prepare: Callable[[Team], None] = lambda _: None, seeds: int = 1
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Play a test in virtual time; its first argument is a team, with a cluster of its own.

    Args:
        prepare: called with the team before the test.
        seeds: how many times it is played.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        return simulated(seeds)(_with_team(test, prepare))

    return decorate


def _with_team(
    test: Callable[..., None], prepare: Callable[[Team], None]
) -> Callable[..., None]:
    @functools.wraps(test)
    def scenario(lab: Lab, **given: Any) -> None:  # noqa: ANN401 - fixtures
        with pytest.MonkeyPatch.context() as patch, Team(Broker(lab)) as team:
            # Commands find the simulated network as clients do.
            patch.setattr(
                connection,
                "_check_values",
                lambda configs: configs.update(lab.connection),
            )
            prepare(team)
            test(team, **given)

    return scenario
