"""A team and its operator's commands in virtual time."""

import functools
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from safeconsumer.cli import connection
from safeconsumer.testing import _codes
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.sim.playing import simulated


class Broker:
    """A simulated cluster as tests of any broker take it."""

    kind = "embedded"
    group_config: Mapping[str, Any] = {}

    def __init__(self, lab):
        self.lab = lab
        self.client_config = lab.connection

    def create_topic(self, name, partitions, settings=None):
        self.lab.cluster.create_topic(name, partitions, settings or {})

    def delete_topic(self, name):
        self.lab.cluster.delete_topic(name)

    def fail(self, api, error, times=1):
        self.lab.cluster.fail(api, error=_codes.error_code(error), count=times)

    def hold(self, api, client_id=None):
        return Held(self.lab, api, client_id)

    def clear_faults(self):
        self.lab.cluster.faults.clear()

    def down(self):
        self.lab.cluster.down(1)

    def up(self):
        self.lab.cluster.up(1)


class Held:
    """Answers that are kept back, as an embedded broker keeps them."""

    def __init__(self, lab, api, client_id):
        self._lab = lab
        self._fault = lab.cluster.fail(api, client_id=client_id, is_held=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def wait(self, count=1):
        self._lab.until(lambda: len(self._fault.kept) >= count)

    def release(self):
        self._fault.end()


def played(prepare=nullcontext, **team):
    """
    Play a test in virtual time; its first argument is a team, with a cluster of its own.

    Args:
        prepare: makes the team ready; it lasts for as long as the test.
        team: what ``Team`` takes besides.
    """

    def decorate(test):
        @functools.wraps(test)
        def scenario(lab, **given):
            with (
                pytest.MonkeyPatch.context() as patch,
                Team(Broker(lab), **team) as made,
                prepare(made),
            ):
                # Commands find the simulated network as clients do.
                patch.setattr(
                    connection,
                    "_check_values",
                    lambda configs: configs.update(lab.connection),
                )
                test(made, **given)

        return simulated(seeds=1)(scenario)

    return decorate


@contextmanager
def work(team):
    """Let one member be at work, which has committed everything."""
    consumer = team.subscribed("billing-1")
    team.catch_up(consumer)
    with Polled(consumer):
        yield
