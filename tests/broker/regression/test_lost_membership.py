"""A consumer that its group has given up: what it paused is still paused when it is back."""

import threading
import time

import pytest
from kafka.coordinator.base import Generation
from kafka.errors import FencedInstanceIdError
from kafka.protocol.consumer import LeaveGroupRequest

from tests.broker.regression.groups import Group, group
from tests.broker.regression.matrix import HOWS, PROTOCOLS, fails, matrix, passes
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import Condition, wait_until
from tests.harness.regression.wire import Wire

UNPAUSED = "kafka-python forgets all pauses when it loses its membership"


def _has_lost(here: Group) -> Condition:
    coordinator = here.reader.consumer._coordinator

    def has_lost() -> bool:
        return bool(coordinator._generation.is_lost())

    return has_lost


def _is_back(here: Group, generation: Generation) -> Condition:
    coordinator = here.reader.consumer._coordinator
    alone = here.alone()
    return lambda: (
        alone()
        and coordinator._generation is not generation
        and not coordinator._generation.is_lost()
        and not coordinator.rejoining
    )


def _expect_quiet(here: Group, before: Generation) -> None:
    here.reader.until(_is_back(here, before))
    assert here.leaked() == 0
    assert here.reader.consumer.paused() == set(here.tps)
    start = here.taken()
    here.reader.consumer.resume(*here.tps)
    here.reader.drain(here.lab.rest(start))


@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), how=HOWS, assignor=PROTOCOLS)
def test_max_poll_interval_exceeded(
    lab: Lab, client: str, how: str, assignor: str
) -> None:
    """Row 5: it did not poll for too long, left its group, and polls again."""
    here = group(lab, client, how=how, assignor=assignor)
    here.pause()
    coordinator = here.reader.consumer._coordinator
    before = coordinator._generation
    limits = coordinator.heartbeat.config  # looked at by each turn of the heartbeats
    usual, limits["max_poll_interval_ms"] = limits["max_poll_interval_ms"], 1000
    wait_until(_has_lost(here))
    limits["max_poll_interval_ms"] = usual
    _expect_quiet(here, before)


@pytest.mark.contract("P6")
@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), assignor=PROTOCOLS)
def test_session_expired_at_the_broker(lab: Lab, client: str, assignor: str) -> None:
    """Row 6: frozen until another member has everything, then polling again."""
    here = group(lab, client, assignor=assignor, **lab.quick_session())
    here.pause()
    before = here.reader.consumer._coordinator._generation
    thawed = threading.Event()
    here.reader.consumer._net.call_soon_threadsafe(lambda: thawed.wait(30))
    try:
        ghost = here.start_ghost()
        ghost.wait_for(here.tps)  # the broker gave up the frozen one
        ghost.stop()
    finally:
        thawed.set()
    _expect_quiet(here, before)


def _unknown_member(here: Group) -> None:
    # Somebody says goodbye in its name: the broker answers UNKNOWN_MEMBER_ID.
    coordinator = here.reader.consumer._coordinator
    request = LeaveGroupRequest(
        group_id=here.name,
        member_id=coordinator._generation.member_id,
        members=[
            LeaveGroupRequest.MemberIdentity(
                member_id=coordinator._generation.member_id, group_instance_id=None
            )
        ],
    )
    here.reader.consumer._manager.run(
        here.reader.consumer._manager.send, request, coordinator.coordinator_id
    )


def _illegal_generation(here: Group) -> None:
    # It claims a generation that is over: the broker answers ILLEGAL_GENERATION.
    coordinator = here.reader.consumer._coordinator
    now = coordinator._generation
    coordinator._generation = Generation(
        now.generation_id - 1, now.member_id, now.protocol
    )


ANSWERS = {
    "UNKNOWN_MEMBER_ID": _unknown_member,
    "ILLEGAL_GENERATION": _illegal_generation,
}


@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), answer=tuple(ANSWERS), how=HOWS)
def test_a_heartbeat_says_that_the_membership_is_over(
    lab: Lab, client: str, answer: str, how: str
) -> None:
    """Row 7: the broker's answer to a heartbeat ends the membership."""
    here = group(lab, client, how=how)
    here.pause()
    coordinator = here.reader.consumer._coordinator
    ANSWERS[answer](here)
    claimed = coordinator._generation
    wait_until(_has_lost(here))
    _expect_quiet(here, claimed)


@pytest.mark.embedded_broker
@matrix(stock=fails(UNPAUSED), answer=tuple(ANSWERS), assignor=PROTOCOLS)
def test_an_injected_heartbeat_error_ends_the_membership(
    lab: Lab, client: str, answer: str, assignor: str
) -> None:
    """Row 7: the same with the errors injected."""
    here = group(lab, client, assignor=assignor)
    here.pause()
    coordinator = here.reader.consumer._coordinator
    before = coordinator._generation
    lab.broker.fail("Heartbeat", answer)
    wait_until(_has_lost(here))
    _expect_quiet(here, before)


@pytest.mark.contract("P11")
@pytest.mark.any_broker
@matrix(stock=fails("kafka-python stops its heartbeats and says nothing"), how=HOWS)
def test_a_fenced_static_member_raises_on_every_later_poll(
    lab: Lab, client: str, how: str
) -> None:
    """Row 16: another member took its ``group_instance_id``."""
    instance = lab.name("static")
    here = group(lab, client, how=how, group_instance_id=instance)
    wire = Wire(here.reader.consumer)
    usurper = lab.member(here.topic, group=here.name, group_instance_id=instance)
    wait_until(usurper.consumer.assignment)
    here.reader.consumer.pause(*here.tps)
    wait_until(
        lambda: any(
            name == "Heartbeat" and response.error_code == FencedInstanceIdError.errno
            for name, response in list(wire.answered)
        )
    )
    raised = 0
    for _ in range(4):
        try:
            here.reader.round()
        except FencedInstanceIdError:
            raised += 1
    assert raised >= 3  # the answer may have come in the middle of the first one


@pytest.mark.contract("P11")
@pytest.mark.any_broker
@matrix(stock=passes())
def test_polling_keeps_a_paused_member_alive(lab: Lab, client: str) -> None:
    """Row R30: paused for three times max.poll.interval.ms, the membership is the same."""
    here = group(lab, client, max_poll_interval_ms=3000)
    here.reader.consumer.pause(*here.reader.consumer.assignment())
    coordinator = here.reader.consumer._coordinator
    before = coordinator._generation
    end = time.monotonic() + 3 * 3.0
    here.reader.until(lambda: time.monotonic() > end)
    assert coordinator._generation is before
    assert here.reader.consumer.paused() == {*here.tps, *here.witnesses}


@pytest.mark.contract("P11")
@pytest.mark.embedded_broker
@matrix(
    stock=fails("kafka-python asks its coordinator again at once, thousands of times"),
    how=HOWS,
    is_paused=(False, True),
)
def test_a_heartbeat_without_an_answer_is_no_reason_to_spin(
    lab: Lab, client: str, how: str, *, is_paused: bool
) -> None:
    """While it is awaited, poll() asks its coordinator at the pace of retry_backoff_ms."""
    # An answer to a fetch ends a wait as well: none comes in that time.
    settings = {"heartbeat_interval_ms": 100, "fetch_max_wait_ms": 5_000}
    here = group(lab, client, how=how, **settings)
    consumer = here.reader.consumer
    if is_paused:
        consumer.pause(*consumer.assignment())
    else:  # a record that is there would end a poll at once
        here.reader.drain(lab.rest(here.taken()))
    asking, asked = consumer._coordinator.poll, []

    def ask(*args: object, **kwargs: object) -> bool:
        asked.append(time.monotonic())
        answer: bool = asking(*args, **kwargs)
        return answer

    with lab.broker.hold("Heartbeat") as late:
        late.wait()
        end = time.monotonic() + 0.2  # its next one is due by then
        here.reader.until(lambda: time.monotonic() > end)
        consumer._coordinator.poll = ask
        began, cpu = time.monotonic(), time.thread_time()
        here.reader.round(1.0)
        seconds, cpu = time.monotonic() - began, time.thread_time() - cpu
    assert seconds >= 0.95
    assert len(asked) <= 25  # ten backoffs, and as much again
    assert cpu < 0.1 * seconds
