"""Members obey holds that are kept in Kafka: those that run, and those that start later."""

import sys

import pytest

from safeconsumer.group import events as control_events
from safeconsumer.group import verdicts
from safeconsumer.group.operator import Operator
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for
from tests.sim.group.teams import played


@pytest.mark.contract("G2")
@played()
def test_manual_assignment_waits_for_the_control_topics_too(team):
    """The barrier is about assignments, not about joins."""
    team.operator_holds(f"{team.topic}:0")
    consumer = team.member()
    consumer.assign(team.partitions[:2])
    got = {}
    poll_until(consumer, lambda: len(got.get(team.partitions[1], ())) == 5, got=got)
    assert team.partitions[0] not in got


@played()
def test_a_hook_that_wants_to_exit_does_not_end_the_reader(team):
    """sys.exit() in a hook ends the thread that delivers: not this one."""
    asked = []

    def leave(event):
        if isinstance(event, control_events.ControlReady) and not asked:
            asked.append(event)
            sys.exit(1)

    consumer = team.ready(hooks=(leave,))
    assert asked
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))


@played()
def test_a_static_member_that_was_closed_has_stopped(team):
    """Kafka lists it until its session ends; it does not die, hang or disobey."""
    consumer = team.ready("a", control=team.quick, group_instance_id="one")
    consumer.close()
    with Operator(team.broker.client_config, team.quick) as operator:
        wait_for(lambda: not operator.look(team.group).reports, "its last report")
        (found,) = operator.look(team.group).members
    assert found.verdict == verdicts.STOPPED
