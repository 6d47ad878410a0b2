"""Each scenario, played by both clients at once on whichever broker was chosen."""

from typing import Any

import pytest
from attrs import evolve
from kafka import KafkaConsumer

from safeconsumer.demo import (
    SAFE,
    STOCK,
    Failure,
    Progress,
    Setting,
    State,
    play,
    play_side_by_side,
)
from safeconsumer.testing.clients import Broker
from tests.harness.cli.results import result, scenario

# The demo, which is CI's first step, plays each of them.
pytestmark = [pytest.mark.any_broker, pytest.mark.nightly]


def test_a_client_that_leaks_is_found_out_whatever_it_is_called(
    kafka_broker: Broker,
) -> None:
    """The referee believes no client: a stock one under our name is no better."""
    impostor = evolve(STOCK, name=SAFE.name, title=SAFE.title)
    seen: list[Progress] = []
    setting = Setting(broker=kafka_broker, report=seen.append)

    result = play(scenario("moved-away"), impostor, setting)

    assert result.error is None
    assert Failure.LEAKED in result.failures
    shown = {(each.state, each.wrong > 0) for one in seen for each in one.partitions}
    assert (State.PAUSE_LOST, True) in shown
    assert {one.client for one in seen} == {SAFE.name}


def test_a_client_that_raises_cuts_only_its_own_play_short(
    kafka_broker: Broker,
) -> None:
    """The result tells what it raised; the others play on."""

    def make(*_topics: str, **_configs: object) -> KafkaConsumer:
        message = "no such client"
        raise ValueError(message)

    broken = evolve(SAFE, make=make)
    setting = Setting(broker=kafka_broker, report=lambda _: None)

    stock, safe = play_side_by_side(
        scenario("resume-starvation"), (STOCK, broken), setting
    )

    assert safe.error == "ValueError: no such client"
    assert stock.error is None


@pytest.mark.embedded_broker
def test_an_eviction_by_a_busy_machine_is_not_held_against_a_client(
    kafka_broker: Any,  # noqa: ANN401 - the embedded one
) -> None:
    """It is said, and played again; what comes twice by Kafka's rules is no failure."""
    evicted: list[str] = []

    def report(progress: Progress) -> None:
        if progress.step.startswith("all paused; the other") and not evicted:
            evicted.append(progress.step)
            kafka_broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID", 2)
        if "played again" in progress.step:
            evicted.append(progress.step)

    setting = Setting(broker=kafka_broker, report=report)
    result = play(scenario("moved-away"), SAFE, setting)
    kafka_broker.clear_faults()

    assert (result.error, result.failures, result.is_evicted) == (None, (), False)
    _, why = evicted
    assert "thrown out of its group: this machine was too busy" in why


def test_an_evicted_member_may_deliver_twice_and_never_what_is_paused() -> None:
    """A hold outlasts a membership."""
    failed = result("moved-away", "safe", Failure.DUPLICATED, error="thrown out")
    leaked = result("moved-away", "safe", Failure.LEAKED, error="thrown out")
    assert evolve(failed, is_evicted=True).failures == ()
    assert evolve(leaked, is_evicted=True).failures == (Failure.LEAKED,)
    assert failed.failures == (Failure.DUPLICATED,)
