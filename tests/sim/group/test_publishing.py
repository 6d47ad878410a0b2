"""Commands and programs write holds, even if responses are lost or writes are refused."""

import signal
import threading
import time
from functools import partial

import pytest
from attrs import evolve
from kafka.producer.future import FutureRecordMetadata

from safeconsumer import Control
from safeconsumer.errors import (
    ControlTopicError,
    ControlWriteError,
    HoldSettingError,
    ScopeSyntaxError,
)
from safeconsumer.group import events as control_events
from safeconsumer.group.history import history_of
from safeconsumer.group.operator import Operator
from safeconsumer.group.plan import place_action
from safeconsumer.group.publisher import changes, new_hold, publish
from tests.harness.group.team import LIMIT
from tests.harness.listing import short
from tests.harness.polling import poll_until
from tests.sim.group.teams import played


def operator(team, name="safeconsumer-cli"):
    return Operator({**team.broker.client_config, "client_id": name}, team.settings)


def placing(team, *scopes):
    return changes(team.group, "alice", scopes, new_hold("x", None))


def lifting(team, *scopes):
    return changes(team.group, "alice", scopes, None)


def logged(team):
    """Return the scope of each record in the holds topic, and whether it is then held."""
    with operator(team) as here:
        here.board.keep_all_records()
        here.holds()
        records = history_of(here.board.records, None)
        return [(one.key.scope, one.hold is not None) for one in records]


@pytest.mark.parametrize("is_placing", [True, False])
@played()
def test_write_with_a_lost_response_is_not_repeated_over_later_writes(
    team, *, is_placing
):
    """A user may run the command again."""
    first, second = placing(team, "orders"), lifting(team, "orders")
    if not is_placing:
        first, second = second, first
    failed = []
    with operator(team, "a") as here, operator(team, "b") as there:
        for one in (here, there):
            one.write(lifting(team, "warm"))

        def write():
            with pytest.raises(ControlWriteError) as error:
                here.write(first)
            failed.append(str(error.value))

        with team.broker.hold("Produce", client_id="a") as late:
            writing = threading.Thread(target=write)
            writing.start()
            late.wait()
            there.write(second)
            team.broker.down()
            team.broker.up()
            writing.join(LIMIT)
    (message,) = failed
    assert "whether orders was written to" in message
    assert message.endswith("acknowledged: nothing. Running it again is safe")
    assert logged(team)[2:] == [("orders", is_placing), ("orders", not is_placing)]


@played()
def test_write_refused_by_a_former_leader_is_retried(team):
    """The refused write has no effect."""
    with operator(team) as here:
        team.broker.fail("Produce", "NOT_LEADER_FOR_PARTITION", 2)
        assert len(here.write(placing(team, "orders"))) == 1
    assert logged(team) == [("orders", True)]


@played()
def test_write_appended_but_not_replicated_is_not_retried(team):
    team.broker.fail("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 1)
    wanted = placing(team, "orders")
    write = partial(publish, lambda: team.writer, team.settings.holds_topic)
    with pytest.raises(ControlWriteError, match="whether orders was written to"):
        write(wanted, LIMIT)
    assert logged(team) == []  # the embedded broker does not append it


@played()
def test_interrupted_write_names_the_acknowledged_records(team, monkeypatch):
    """A write that has no response yet is reported as unknown."""
    get = FutureRecordMetadata.get

    def interrupted(self, *given):
        monkeypatch.setattr(FutureRecordMetadata, "get", raising)
        return get(self, *given)

    def raising(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(FutureRecordMetadata, "get", interrupted)
    expected = (
        "interrupted: whether other was written to .* acknowledged: orders. Running"
    )
    with operator(team) as here, pytest.raises(KeyboardInterrupt, match=expected):
        here.write(placing(team, "orders", "other"))


@played()
def test_write_interrupted_before_sending_names_the_missing_records(team):
    def connect():
        raise KeyboardInterrupt

    expected = r"orders could not be written to ops \(interrupted before it was sent"
    with pytest.raises(KeyboardInterrupt, match=expected):
        publish(connect, "ops", placing(team, "orders"), LIMIT)


@pytest.mark.parametrize("where", ["send", "get"])
@played()
def test_timeout_error_of_the_caller_is_raised_unchanged(team, monkeypatch, where):
    """A TimeoutError is an OSError, like the failures of the network."""

    def limit(*_):
        message = "the job took too long"
        raise TimeoutError(message)

    owner = {"send": type(team.writer), "get": FutureRecordMetadata}[where]
    monkeypatch.setattr(
        owner, where, lambda *_, **__: signal.raise_signal(signal.SIGUSR1)
    )
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with (
            operator(team) as here,
            pytest.raises(TimeoutError, match="the job took too long"),
        ):
            here.write(placing(team, "orders", "other"))
    finally:
        signal.signal(signal.SIGUSR1, before)


# ---------------------------------------------------------------- a program's holds


@pytest.mark.contract("G1", "G3")
@played()
def test_program_places_and_lifts_only_its_own_holds(team):
    consumer = team.ready()
    team.operator_holds(team.topic)
    with operator(team) as one:
        one.pause(team.group, team.topic, owner="loader", reason="full", for_=60)
        poll_until(consumer, lambda: len(consumer.holds()) == 2)
        (held,) = [it for it in consumer.holds() if it.owner == "operator:loader"]
        assert (held.reason, held.expires_at - held.placed_at) == ("full", 60)
        one.resume(team.group, team.topic, owner="loader")
    poll_until(consumer, lambda: len(consumer.holds()) == 1)
    assert consumer.holds()[0].owner == "operator:alice"


@played()
def test_renewed_hold_keeps_the_time_of_its_first_placement(team):
    """The topic's retention counts from that time, even if the hold is renewed often."""
    with operator(team) as one:
        for seconds in (600, 601, 602):
            one.pause(team.group, "orders", owner="loader", for_=seconds)
        (last,) = one.holds(team.group)
        assert (last.offset, last.hold.ttl_ms) == (2, 602_000)
        assert last.since < last.at
        one.resume(team.group, "orders", owner="loader")
        one.pause(team.group, "orders", owner="loader")
        (again,) = one.holds(team.group)
        assert again.since == again.at


@pytest.mark.parametrize(
    "wrong",
    [
        {"owner": "operator:"},
        {"group": ""},
        {"target": "no topic"},
        {"reason": "a\0b"},
        {"for_": -1},
    ],
    ids=short,
)
@played()
def test_invalid_holds_are_refused_before_anything_is_written(team, wrong):
    given = {"owner": "loader", "group": "g", "target": "orders", **wrong}
    group, target = given.pop("group"), given.pop("target")
    with operator(team) as one, pytest.raises((HoldSettingError, ScopeSyntaxError)):
        one.pause(group, "good", target, **given)
    assert logged(team) == []


def unfit(team):
    """Return settings for a holds topic whose records Kafka deletes."""
    settings = Control.prefixed(f"{team.prefix}unfit_")
    team.broker.create_topic(settings.holds_topic, 1, {"cleanup.policy": "delete"})
    return settings


@pytest.mark.contract("G4")
@pytest.mark.parametrize("call", ["pause", "resume"])
@played()
def test_holds_topic_that_deletes_records_is_refused_to_a_program(team, call):
    team.settings = unfit(team)
    with (
        operator(team) as one,
        pytest.raises(ControlTopicError, match=r"has cleanup\.policy=delete"),
    ):
        getattr(one, call)(team.group, "orders", owner="loader")
    assert logged(team) == []


@pytest.mark.parametrize("call", ["pause", "resume"])
@played()
def test_program_without_a_holds_topic_fails_immediately(team, call):
    """Neither a pause nor a lift waits until the topic exists."""
    team.settings = Control.prefixed(f"{team.prefix}none_")
    now = time.monotonic()
    with (
        operator(team) as one,
        pytest.raises(ControlTopicError, match="run safeconsumer control init"),
    ):
        getattr(one, call)(team.group, "orders", owner="loader")
    assert time.monotonic() - now < 5


@played()
def test_operator_keeps_no_records_of_lifted_holds(team):
    """A program may keep an operator open for months, and each call reads new records."""
    with operator(team) as one:
        for _ in range(5):
            one.pause(team.group, "orders", owner="loader")
            one.resume(team.group, "orders", owner="loader")
        assert [*one.board.records] == []
    assert len(logged(team)) == 10


@pytest.mark.contract("G4")
@played()
def test_settings_of_a_recreated_holds_topic_are_checked_again(team):
    name = team.settings.holds_topic
    with operator(team) as one:
        one.pause(team.group, "orders", owner="loader")
        team.broker.delete_topic(name)
        team.broker.create_topic(name, 1, {"cleanup.policy": "delete"})
        with pytest.raises(ControlTopicError, match=r"has cleanup\.policy=delete"):
            one.pause(team.group, "orders", owner="loader")


@pytest.mark.contract("G4")
@played()
def test_connection_checks_the_topic_settings_once(team):
    action = place_action(group="g", owner="a", texts=["t"], reason="x", for_=None)
    with operator(team) as one, pytest.MonkeyPatch.context() as patch:
        asked, facts = [], Operator.facts
        patch.setattr(Operator, "facts", lambda it: asked.append(it) or facts(it))
        one.look("g", is_strict=True)
        one.write(action.changes)
        one.pause("g", "orders", owner="loader")
        one.check()
        assert asked == [one]


@played()
def test_trusted_topic_is_not_checked(team):
    team.settings = evolve(unfit(team), trust_topic=True)
    with operator(team) as one:
        one.pause(team.group, "orders", owner="loader")
        one.resume(team.group, "orders", owner="loader")
    assert logged(team) == [("orders", True), ("orders", False)]


@pytest.mark.contract("G4")
@played()
def test_member_that_trusts_the_topic_warns_once_that_its_policy_is_unchecked(team):
    team.settings = evolve(unfit(team), trust_topic=True)
    member = team.ready()
    warnings = team.emitted(member).of(control_events.ControlUnchecked)
    assert ["trust_topic" in one.reason for one in warnings] == [True]
