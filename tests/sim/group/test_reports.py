"""Members obey holds that are kept in Kafka: those that run, and those that start later."""

import sys
import threading

import pytest
from kafka import ConsumerRebalanceListener

from safeconsumer.errors import BlockingCallInListenerError, ControlWriteError
from safeconsumer.group import events as control_events
from safeconsumer.group import verdicts
from safeconsumer.group.operator import Operator
from safeconsumer.testing.polling import poll_until as poll_all
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for
from tests.sim.group.teams import played


@pytest.mark.contract("G1")
@played()
def test_a_group_hold_of_one_member_is_obeyed_by_all(team):
    """Any member lifts it; an operator's hold of the same scope stays."""
    first, second = team.subscribed("a"), team.subscribed("b")
    both = [first, second]
    poll_all(both, lambda: all(len(one.assignment()) == 2 for one in both))
    poll_all(both, lambda: all(team.is_ungated(one) for one in both))
    first.pause_group(team.topic, reason="backpressure")
    assert first.quiet() == first.assignment()
    poll_all(both, lambda: second.quiet() == second.assignment())
    (hold,) = second.holds()
    assert (hold.owner, hold.reason) == ("group:app", "backpressure")
    team.operator_holds(team.topic)
    poll_all(both, lambda: len(first.holds()) == 2)
    remaining = second.resume_group(team.topic)
    assert {one.owner for one in remaining} <= {"operator:alice"}
    poll_all(both, lambda: [h.owner for h in first.holds()] == ["operator:alice"])


@played()
def test_a_group_call_in_a_listener_is_refused(team):
    raised = []
    consumer = team.member()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, _assigned):
            for call in (consumer.pause_group, consumer.resume_group):
                try:
                    call("@all")
                except BlockingCallInListenerError as error:
                    raised.append(error)

        def on_partitions_revoked(self, _revoked):
            pass

    consumer.subscribe([team.topic], listener=Listener())
    team.settled(consumer)
    assert len(raised) >= 2


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


# ---------------------------------------------------------------- the group's own holds


@played()
def test_a_failed_group_hold_leaves_what_stood_before(team):
    """Nothing, or a hold for good, which does not turn into one that ends."""
    consumer = team.ready(control=team.with_settings(status_topic=None))
    team.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(ControlWriteError, match="acknowledged: nothing"):
        consumer.pause_group("orders")
    assert consumer.holds() == ()
    consumer.pause_group(team.topic, reason="for good")
    team.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(ControlWriteError):
        consumer.pause_group(team.topic, reason="for a moment", for_=0.1)
    (hold,) = consumer.holds()
    assert (hold.reason, hold.expires_at) == ("for good", None)


@played()
def test_a_group_hold_that_is_renewed_stands_since_it_was_placed(team):
    """A lease comes nearer to retention, however often and by whom it is renewed."""
    control = team.with_settings(status_topic=None)
    consumer = team.ready(control=control)

    def standing():
        with Operator(team.broker.client_config, team.settings) as operator:
            (one,) = operator.holds(team.group)
        return one

    def heard(member):
        return [one.placed_at for one in member.holds()] == [first.at]

    consumer.pause_group(team.topic, reason="lease", for_=600)
    first = standing()
    # What it has not heard of it does not renew, but places.
    poll_until(consumer, lambda: heard(consumer))
    consumer.pause_group(team.topic, reason="lease", for_=601)
    other = team.subscribed("b", control=control)
    poll_until(other, lambda: heard(other))
    other.pause_group(team.topic, reason="lease", for_=602)
    last = standing()
    assert (last.since, last.offset) == (first.at, first.offset + 2)
    poll_until(other, lambda: heard(other))
    poll_until(consumer, lambda: heard(consumer))
    consumer.resume_group(team.topic)
    consumer.pause_group(team.topic, reason="lease", for_=600)
    again = standing()
    assert again.since == again.at


@played()
def test_a_shorter_group_hold_is_obeyed_when_it_is_written(team, monkeypatch):
    """What stands is not ended by what was only tried."""
    control = team.with_settings(status_topic=None, clock_skew=0.0)
    consumer = team.subscribed(control=control)
    consumer.pause_group(team.topic, reason="for good")
    monkeypatch.setattr("safeconsumer.group.member._WRITE_TIMEOUT", 1.0)
    monkeypatch.setattr("safeconsumer.group.publisher._MARGIN", 20.0)
    assert sum(map(len, team.settled(consumer).values())) == 0
    shorter = threading.Thread(target=_tried, args=(consumer, team.topic))
    team.broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1000)
    shorter.start()
    while shorter.is_alive():
        assert consumer.poll(50) == {}
        assert [hold.reason for hold in consumer.holds()] == ["for good"]
    team.broker.clear_faults()


def _tried(consumer, topic):
    with pytest.raises(ControlWriteError, match="NotEnoughReplicas"):
        consumer.pause_group(topic, reason="for a moment", for_=0.05)


@played()
def test_a_group_hold_whose_acknowledgement_is_lost_is_obeyed(team, monkeypatch):
    """It stands on the topic, so that every member reads it, this one too."""
    consumer = team.ready(control=team.with_settings(status_topic=None))
    consumer.resume_group("other")  # its client is made
    monkeypatch.setattr("safeconsumer.group.member._WRITE_TIMEOUT", 1.0)
    late = team.broker.hold("Produce", client_id="a-control")
    with pytest.raises(ControlWriteError, match="is unknown"):
        consumer.pause_group(team.topic)
    poll_until(consumer, team.is_quiet(consumer))
    late.release()
    assert [hold.owner for hold in consumer.holds()] == ["group:app"]


@played()
def test_a_static_member_that_was_closed_has_stopped(team):
    """Kafka lists it until its session ends; it does not die, hang or disobey."""
    consumer = team.ready("a", control=team.quick, group_instance_id="one")
    consumer.close()
    with Operator(team.broker.client_config, team.quick) as operator:
        wait_for(lambda: not operator.look(team.group).reports, "its last report")
        (found,) = operator.look(team.group).members
    assert found.verdict == verdicts.STOPPED
