"""Members obey holds that are kept in Kafka: those that run, and those that start later."""

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import BlockingCallInListenerError, ControlWriteError, SafeConsumer
from safeconsumer.events import group as control_events
from safeconsumer.group import report_wire
from safeconsumer.group.barrier import Barrier
from safeconsumer.group.facts import Standing
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.operator import Operator
from safeconsumer.testing.polling import poll_until as poll_all
from tests.harness.group.team import LIMIT, Team, control_threads
from tests.harness.polling import poll_until

pytestmark = pytest.mark.any_broker
embedded = pytest.mark.embedded_broker


@pytest.fixture
def team(kafka_broker: Any) -> Iterator[Team]:  # noqa: ANN401 - any kind
    with Team(kafka_broker) as made:
        yield made


@pytest.mark.contract("G1")
def test_a_hold_placed_before_the_group_exists_is_obeyed(team: Team) -> None:
    """Nothing is delivered; after it is lifted everything is, from the first on."""
    team.operator_holds(team.topic)
    consumer = team.subscribed()
    assert team.settled(consumer) == {}
    assert consumer.paused() == set(team.partitions)
    team.operator_lifts(team.topic)
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    assert got == {tp: list(range(5)) for tp in team.partitions}


@pytest.mark.contract("G1")
def test_a_partition_of_a_topic_called_re_is_held(kafka_broker: Any) -> None:  # noqa: ANN401 - any kind
    """For every member, by the call, by the text, and until that is lifted."""
    with Team(kafka_broker, partitions=2, topic="re") as team:
        consumer = team.subscribed()
        team.settled(consumer)
        first, second = team.partitions
        consumer.pause_group(second)
        poll_until(consumer, lambda: consumer.paused() == {second})
        (hold,) = consumer.holds()
        assert hold.lifted_by() == "resume_group('re:re:1')"
        assert consumer.resume_group("re:re:1") == ()
        poll_until(consumer, lambda: not consumer.paused())
        team.operator_holds("re:re:0")
        poll_until(consumer, lambda: consumer.paused() == {first})


@pytest.mark.contract("G3")
def test_an_owner_stops_and_resume_lifts_only_its_own(team: Team) -> None:
    """resume() says what remains; paused() and explain() show the operator's hold."""
    consumer = team.subscribed()
    team.settled(consumer)
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))
    first = team.partitions[0]
    consumer.pause(first)
    (left,) = consumer.resume(first)
    assert (left.owner, left.reason) == ("operator:alice", "test")
    (line,) = consumer.explain(first)
    assert "@all held by operator:alice" in line
    assert "because test" in line
    team.operator_lifts("@all")
    poll_until(consumer, lambda: not consumer.paused())


def test_a_pattern_and_a_partition(team: Team) -> None:
    consumer = team.subscribed()
    team.settled(consumer)
    team.operator_holds(f"{team.topic}:1")
    poll_until(consumer, lambda: consumer.paused() == {team.partitions[1]})
    team.operator_holds("re:orders-.*")
    poll_until(consumer, team.is_quiet(consumer))
    team.operator_lifts("re:orders-.*")
    poll_until(consumer, lambda: consumer.paused() == {team.partitions[1]})


@pytest.mark.contract("G6")
def test_it_ends_by_itself(team: Team) -> None:
    """After its time and the skew; its neighbours never stop."""
    consumer = team.subscribed()
    team.settled(consumer)
    team.operator_holds(f"{team.topic}:1", for_=6.0)
    poll_until(consumer, lambda: consumer.paused() == {team.partitions[1]})
    (hold,) = consumer.holds()
    poll_until(consumer, lambda: not consumer.paused())
    assert consumer.holds() == ()
    assert hold.expires_at is not None
    assert hold.expires_at - hold.placed_at == pytest.approx(6.0)


@pytest.mark.contract("G1")
@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, CooperativeStickyAssignor]
)
def test_what_moves_to_another_member_stays_held(team: Team, assignor: type) -> None:
    """The new owner learns of the hold before its first record."""
    strategy = {"partition_assignment_strategy": [assignor]}
    team.operator_holds(team.topic)
    first = team.subscribed("a", **strategy)
    assert team.settled(first) == {}
    second = team.subscribed("b", **strategy)
    both = [first, second]
    records = poll_all(
        both,
        lambda: all(
            len(one.assignment()) == 2 and team.is_ungated(one) for one in both
        ),
    )
    assert records == []
    assert first.paused() | second.paused() == set(team.partitions)
    first.close()
    assert team.settled(second) == {}


@pytest.mark.contract("G1")
def test_a_group_hold_of_one_member_is_obeyed_by_all(team: Team) -> None:
    """Any member lifts it; an operator's hold of the same scope stays."""
    first, second = team.subscribed("a"), team.subscribed("b")
    both = [first, second]
    poll_all(both, lambda: all(len(one.assignment()) == 2 for one in both))
    poll_all(both, lambda: all(team.is_ungated(one) for one in both))
    first.pause_group(team.topic, reason="backpressure")
    assert first.paused() == first.assignment()
    poll_all(both, lambda: second.paused() == second.assignment())
    (hold,) = second.holds()
    assert (hold.owner, hold.reason) == ("group:app", "backpressure")
    team.operator_holds(team.topic)
    poll_all(both, lambda: len(first.holds()) == 2)
    remaining = second.resume_group(team.topic)
    assert {one.owner for one in remaining} <= {"operator:alice"}
    poll_all(both, lambda: [h.owner for h in first.holds()] == ["operator:alice"])


def test_a_group_call_in_a_listener_is_refused(team: Team) -> None:
    raised: list[BaseException] = []
    consumer = team.member()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, _assigned: object) -> None:
            for call in (consumer.pause_group, consumer.resume_group):
                try:
                    call("@all")
                except BlockingCallInListenerError as error:
                    raised.append(error)

        def on_partitions_revoked(self, _revoked: object) -> None:
            pass

    consumer.subscribe([team.topic], listener=Listener())
    team.settled(consumer)
    assert len(raised) >= 2


@pytest.mark.contract("G2")
def test_manual_assignment_waits_for_the_control_topics_too(team: Team) -> None:
    """The barrier is about assignments, not about joins."""
    team.operator_holds(f"{team.topic}:0")
    consumer = team.member()
    consumer.assign(team.partitions[:2])
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: len(got.get(team.partitions[1], ())) == 5, got=got)
    assert team.partitions[0] not in got


@pytest.mark.contract("G4")
def test_garbage_does_not_reach_poll(team: Team) -> None:
    """Skipped, counted, reported; the hold behind it is obeyed."""
    consumer = team.subscribed()
    team.settled(consumer)
    ops = team.settings.operator_topic
    for n in range(5_000):
        team.write_raw(ops, b"garbage-%d" % n, b"\xff" * 20)
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))
    told = team.told[id(consumer)].of(control_events.ControlRecordsSkipped)
    assert told
    assert consumer._safe_control._state.skipped == 5_000  # type: ignore[union-attr]  # controlled


@pytest.mark.contract("G8")
def test_members_report_what_they_obey(team: Team) -> None:
    """Also that it is quiet, soon after it is."""
    consumer = team.subscribed("reporter")
    team.settled(consumer)
    (done,) = team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))
    with Operator(team.broker.client_config, team.settings) as operator:

        def has_reported() -> bool:
            reports = operator.reports(team.group)
            if not reports or report_wire.count_of(reports[-1].quiet) != 4:
                return False
            # It may have been made between two steps of taking over the hold.
            applied = reports[-1].applied.get(team.settings.operator_topic, 0)
            return applied > done.offset

        poll_until(consumer, has_reported)
        (report,) = operator.reports(team.group)
    assert (report.client_id, report.state, report.holds) == ("reporter", "ready", 1)
    assert report.applied[team.settings.operator_topic] == done.offset + 1


@pytest.mark.parametrize("ahead", [-120.0, 120.0])
def test_an_operator_with_a_wrong_clock_sees_who_is_there(
    team: Team, ahead: float
) -> None:
    """Who is alive is told by the reports; who was killed is not among them."""
    consumer = team.subscribed("alive", control=team.quick)
    killed = team.member("killed", control=team.quick)
    team.settled(consumer)
    clock = LogClock(wall=lambda: time.time() + ahead)
    with Operator(team.broker.client_config, team.quick, clock) as operator:

        def look() -> set[str]:
            return {one.client_id for one in operator.reports(team.group)}

        poll_until(consumer, lambda: look() == {"alive", "killed"})
        team.silence(killed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("safeconsumer.group.operator.SILENT_AFTER", 1.5)
            poll_until(consumer, lambda: look() == {"alive"})
            team.silence(consumer)
            poll_until(consumer, lambda: not look())


def test_a_hook_that_wants_to_exit_does_not_end_the_reader(team: Team) -> None:
    """sys.exit() in a hook ends the thread that delivers: not this one."""
    asked = []

    def leave(event: object) -> None:
        if isinstance(event, control_events.ControlReady) and not asked:
            asked.append(event)
            sys.exit(1)

    consumer = team.subscribed(hooks=(leave,))
    team.settled(consumer)
    assert asked
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))


def test_close_ends_every_thread(team: Team) -> None:
    before = set(control_threads())
    consumer = team.subscribed()
    team.settled(consumer)
    assert set(control_threads()) - before
    consumer.close()
    assert set(control_threads()) - before == set()


# ---------------------------------------------------------------- a late control view


def late_start(team: Team, **configs: Any) -> tuple[SafeConsumer, Any]:  # noqa: ANN401 - upstream's
    """Hold the group, and start a member whose control fetches are not answered."""
    team.operator_holds(team.topic)
    late = team.broker.hold("Fetch", client_id="a-control")
    return team.subscribed(**configs), late


@pytest.mark.contract("G2")
@embedded
def test_a_member_with_a_late_view_delivers_nothing(team: Team) -> None:
    """It keeps its membership, and is quiet by its gates until it has read."""
    consumer, late = late_start(team)
    assert poll_until(consumer, team.has_all(consumer)) == {}
    late.wait()
    for _ in range(10):
        assert consumer.poll(50) == {}
    assert consumer.paused() == set(team.partitions)
    assert "control topics" in consumer.explain(team.partitions[0])[0]
    fetched = {tp for one in team.broker.requests("Fetch") for tp in one.partitions}
    assert not fetched & set(team.partitions)  # nothing of it was asked for
    assert {consumer.position(tp) for tp in team.partitions} == {0}
    late.release()
    poll_until(consumer, lambda: len(consumer.holds()) == 1)
    assert team.settled(consumer) == {}


@embedded
def test_without_the_barrier_the_same_member_leaks(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""

    def open_at_once(self: Barrier, epochs: Any) -> None:  # noqa: ANN401 - a mapping
        thread = threading.Thread(target=self._ledger.open_gates, args=(epochs,))
        thread.start()

    monkeypatch.setattr(Barrier, "close", open_at_once)
    consumer, late = late_start(team)
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    late.release()


@pytest.mark.contract("G5")
@embedded
def test_run_lets_new_partitions_flow_after_its_time(team: Team) -> None:
    """An alarm says so; once the topics are read the hold is obeyed again."""
    settings = team.with_settings(unavailable="run", run_after=0.5)
    consumer, late = late_start(team, control=settings)
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    told = team.told[id(consumer)].of(control_events.GatesOpenedUnread)
    assert {tp for one in told for tp in one.partitions} == set(team.partitions)
    late.release()
    poll_until(consumer, team.is_quiet(consumer))


@pytest.mark.contract("G5")
@embedded
def test_unreachable_keeps_the_last_state_and_gates_what_is_new(team: Team) -> None:
    """The member stays in its group, and what flowed goes on."""
    first = team.subscribed("a")
    team.settled(first)
    team.operator_holds(f"{team.topic}:0")
    poll_until(first, lambda: first.paused() == {team.partitions[0]})
    generation = first.group_metadata().generation_id
    late = team.broker.hold("Fetch", client_id="a-control")
    told = team.told[id(first)]
    poll_until(first, lambda: told.of(control_events.ControlUnavailable))
    team.produce(1)
    got: dict[Any, list[int]] = {}
    poll_until(first, lambda: len(got) == 3, got=got)
    assert team.partitions[0] not in got
    assert first.group_metadata().generation_id == generation
    late.release()
    poll_until(first, lambda: len(told.of(control_events.ControlReady)) == 2)
    assert first.paused() == {team.partitions[0]}


@embedded
def test_a_failed_group_hold_is_not_held_here(team: Team) -> None:
    """The error says what was acknowledged; nothing half-done stays."""
    consumer = team.subscribed(control=team.with_settings(status_topic=None))
    team.settled(consumer)
    team.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(ControlWriteError, match="acknowledged: nothing"):
        consumer.pause_group("orders")
    assert consumer.holds() == ()


@embedded
def test_a_failed_group_hold_leaves_what_stood_before(team: Team) -> None:
    """A hold for good does not turn into one that ends."""
    consumer = team.subscribed(control=team.with_settings(status_topic=None))
    team.settled(consumer)
    consumer.pause_group(team.topic, reason="for good")
    team.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(ControlWriteError):
        consumer.pause_group(team.topic, reason="for a moment", for_=0.1)
    (hold,) = consumer.holds()
    assert (hold.reason, hold.expires_at) == ("for good", None)


def test_a_group_hold_that_is_renewed_stands_since_it_was_placed(team: Team) -> None:
    """A lease comes nearer to retention, however often and by whom it is renewed."""
    control = team.with_settings(status_topic=None)
    consumer = team.subscribed(control=control)
    team.settled(consumer)

    def standing() -> Standing:
        with Operator(team.broker.client_config, team.settings) as operator:
            (one,) = operator.standing(team.group)
        return one

    def heard(member: SafeConsumer) -> bool:
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


@embedded
def test_a_shorter_group_hold_is_obeyed_when_it_is_written(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def _tried(consumer: SafeConsumer, topic: str) -> None:
    with pytest.raises(ControlWriteError, match="NotEnoughReplicas"):
        consumer.pause_group(topic, reason="for a moment", for_=0.05)


@embedded
def test_a_group_hold_whose_acknowledgement_is_lost_is_found(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands on the topic, and every other member obeys it."""
    consumer = team.subscribed(control=team.with_settings(status_topic=None))
    team.settled(consumer)
    consumer.resume_group("other")  # its client is made
    monkeypatch.setattr("safeconsumer.group.member._WRITE_TIMEOUT", 1.0)
    late = team.broker.hold("Produce", client_id="a-control")
    consumer.pause_group(team.topic)
    poll_until(consumer, team.is_quiet(consumer))
    late.release()
    assert [hold.owner for hold in consumer.holds()] == ["group:app"]


@embedded
def test_a_members_lost_answer_does_not_undo_what_another_lifted(team: Team) -> None:
    """Both calls return; the later record is the one that counts."""
    control = team.with_settings(status_topic=None)
    first, second = (team.member(name, control=control) for name in "ab")
    for one in (first, second):
        one.subscribe([team.topic])
        one.pause_group("other")
        one.resume_group("other")
    with team.broker.hold("Produce", client_id="a-control") as late:
        pausing = threading.Thread(target=first.pause_group, args=(team.topic,))
        pausing.start()
        late.wait()
        second.resume_group(team.topic)
        team.broker.down()
        team.broker.up()
        pausing.join(LIMIT)
    assert not pausing.is_alive()
    assert whats_held(team) == []


def whats_held(team: Team) -> list[str]:
    with Operator(team.broker.client_config, team.settings) as operator:
        return [one.key.scope for one in operator.standing(team.group)]


@embedded
def test_a_resume_that_may_come_late_says_so(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lift what is placed again meanwhile; one that was refused would not."""
    consumer = team.subscribed(control=team.with_settings(status_topic=None))
    team.settled(consumer)
    consumer.pause_group(team.topic)
    monkeypatch.setattr("safeconsumer.group.member._WRITE_TIMEOUT", 1.0)
    monkeypatch.setattr("safeconsumer.group.member._FIND_SECONDS", 0.5)
    team.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(ControlWriteError) as refused:
        consumer.resume_group(team.topic)
    assert "later" not in str(refused.value)
    team.broker.freeze()
    with pytest.raises(ControlWriteError, match="may still be written later"):
        consumer.resume_group(team.topic)
    team.broker.unfreeze()


@embedded
def test_no_control_client_is_made_after_the_end(team: Team) -> None:
    """A call that comes late is refused, and leaves no thread behind."""
    consumer = team.subscribed(control=team.with_settings(status_topic=None))
    team.settled(consumer)
    before = set(control_threads())
    consumer.close()
    with pytest.raises(ControlWriteError, match="closed"):
        consumer.pause_group(team.topic)
    assert set(control_threads()) <= before
