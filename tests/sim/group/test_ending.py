"""Holds whose time is near, and what is typed to lift."""

import json
from contextlib import contextmanager
from functools import partial

from kafka.structs import OffsetAndMetadata

from safeconsumer import Control
from safeconsumer.cli.errors import Status
from tests.harness.group.operating import run
from tests.harness.polling import poll_until
from tests.sim.group.teams import played


@contextmanager
def leave(team):
    """Let the group have committed, and nobody be in it, who could report."""
    consumer = team.subscribed("gone", control=None)
    poll_until(consumer, team.has_all(consumer))
    consumer.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    consumer.close(autocommit=False)
    yield


def asked(team, command, *arguments):
    """Run a command as the owner that a team shares."""
    whose = ("--group", team.group, "--owner", "oncall")
    return run(team, command, *arguments, *whose)


def past(team):
    return json.loads(run(team, "history", "-o", "json").stdout)["records"]


# ---------------------------------------------------------------- ends


@played(leave)
def test_extend_where_nobody_reports(team):
    """It does not shorten, and brings back nothing that has ended or may have."""
    asked(team, "pause", "@all", "--reason", "x", "--for", "2h")
    ended = asked(team, "extend", "@all", "--for", "90m")
    assert ended.exit_code == Status.FAILED
    assert "which is later" in ended.stderr
    team.operator_holds(team.topic, for_=0.001, owner="oncall")
    shown = run(team, "status", "--group", team.group).stdout
    assert shown.count("so it counts as in force") == 1
    ended = asked(team, "extend", team.topic, "--for", "2h")
    assert ended.exit_code == Status.FAILED
    assert f"{team.topic} may have ended at 2" in ended.stderr
    team.operator_holds("other", owner="oncall")
    ended = asked(team, "extend", team.topic, "--for", "2h")
    assert ended.exit_code == Status.FAILED
    assert f"{team.topic} ended at 2" in ended.stderr
    assert "members lift it until 2" in ended.stderr
    assert len(past(team)) == 3


@played(leave)
def test_lifting_what_is_over_is_lifting_in_vain(team, monkeypatch):
    """In the wrong name, that is: somebody else holds that very scope."""
    team.operator_holds("@all", for_=0.001, owner="oncall")
    team.operator_holds("@all", owner="bob")
    team.operator_holds("other", owner="bob")
    monkeypatch.setattr(Control, "prefixed", partial(Control.prefixed, clock_skew=0))
    ended = asked(team, "resume", "@all")
    assert ended.exit_code == Status.FAILED
    assert "was not held: @all operator:oncall" in ended.stdout
    assert ended.stderr.endswith("nothing was lifted: name the owner, --owner bob\n")


@played(leave)
def test_what_to_lift_is_given_in_one_way(team):
    for given, said in (
        (("--all", team.topic), "too much: give only one of SCOPE... or --all"),
        ((), "nothing to lift: give SCOPE... or --all"),
    ):
        ended = asked(team, "resume", *given)
        assert ended.exit_code == Status.USAGE
        assert said in ended.stderr
