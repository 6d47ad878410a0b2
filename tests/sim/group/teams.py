"""A team and its operator's commands in virtual time."""

import functools
import json
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli import connection
from safeconsumer.cli.errors import Status
from safeconsumer.testing import _codes
from tests.harness.group.team import Team, run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.sim.playing import simulated


class Broker:
    """A simulated cluster with the interface of other brokers."""

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
        return KeptAnswers(self.lab, api, client_id)

    def clear_faults(self):
        self.lab.cluster.faults.clear()

    def down(self):
        self.lab.cluster.down(1)

    def up(self):
        self.lab.cluster.up(1)


class KeptAnswers:
    """Withholds responses of a broker, as ``EmbeddedBroker.hold`` does."""

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
    Run a test in virtual time; its first argument is a team with its own cluster.

    Args:
        prepare: makes a context for the team, in which the test runs.
        team: further arguments of ``Team``.
    """

    def decorate(test):
        @functools.wraps(test)
        def scenario(lab, **given):
            with pytest.MonkeyPatch.context() as patch:
                # With this patch commands use the simulated network, as clients do.
                patch.setattr(
                    connection,
                    "_check_values",
                    lambda configs: configs.update(lab.connection),
                )
                with Team(Broker(lab), **team) as made, prepare(made):
                    test(made, **given)

        return simulated(seeds=1)(scenario)

    return decorate


# ---------------------------------------------------------------- groups


@contextmanager
def work(team):
    """Run the test with one polling member, which has committed everything."""
    consumer = team.subscribed("billing-1")
    team.catch_up(consumer)
    with Polled(consumer):
        yield


@contextmanager
def held(team):
    """Run the test with a member that obeys alice's hold of the topic."""
    with work(team):
        typed(team, "pause", team.topic, "--reason", "x", "--wait", "30s")
        yield


@contextmanager
def patient(team):
    """Run the test with a member that allows more clock skew than commands do."""
    consumer = team.subscribed("patient", control=team.with_settings(clock_skew=300.0))
    team.catch_up(consumer)
    with Polled(consumer):
        yield consumer


@contextmanager
def leave(team):
    """Run the test for a group that has commits, but no member that could report."""
    consumer = team.subscribed("gone", control=None)
    poll_until(consumer, team.has_all(consumer))
    consumer.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    consumer.close(autocommit=False)
    yield


# ---------------------------------------------------------------- commands

_OWNED = {"pause", "extend", "resume", "reset-offsets"}


def typed(team, command, *arguments, owner="alice", status=Status.DONE):
    """
    Run a command for the group, and check its exit status.

    Returns:
        The command's stdout if it succeeds, otherwise its line on stderr.
    """
    whose = ("--owner", owner) if command in _OWNED else ()
    ended = run(team, command, "--group", team.group, *whose, *arguments)
    assert ended.exit_code == status, ended.output
    if status == Status.DONE:
        assert ended.stderr == ""
        return ended.stdout
    assert (ended.stdout, ended.stderr.count("\n")) == ("", 1)
    return ended.stderr


def pause(team, *arguments, **more):
    """Run ``pause`` with a reason."""
    return typed(team, "pause", "--reason", "x", *arguments, **more)


def document(team, *words, **more):
    """Run a command that prints JSON."""
    return json.loads(typed(team, *words, "-o", "json", **more))
