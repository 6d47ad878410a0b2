"""A group under an operator's hold while the broker freezes or is killed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka.structs import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.audit.writer import JournalWriter
from safeconsumer.testing.polling import poll_until as poll_all
from tests.harness.group.operating import run
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.system.containers.held import STAYS, judged
from tests.system.containers.outages import Outage

if TYPE_CHECKING:
    from tests.harness.brokers.container import ContainerBroker

pytestmark = pytest.mark.container_broker

EACH = 20
AWAY = 2.0
LIMIT = 15.0
"""Seconds that a hold lasts; placing it and waiting for it takes some 2."""


@pytest.fixture
def team(kafka_broker: "ContainerBroker") -> Iterator[Team]:
    """Make a group's topics, and let it go at the end."""
    with Team(kafka_broker, records=EACH) as made:
        yield made


def member(team: Team, name: str, journals: Path) -> SafeConsumer:
    """Make a member that reports often, takes 7 records a poll, and keeps a journal."""
    more = {**STAYS, "max_poll_records": 7}
    return team.subscribed(name, control=team.quick, journal=journals, **more)


def operate(team: Team, journals: Path, command: str, *more: str) -> None:
    """Run a command of the operator about the whole topic; it is to be done."""
    journal = ("--journal", str(journals / "ops.journal"))
    group = ("--group", team.group, "--owner", "eve", *journal)
    done = run(team, command, team.topic, *group, *more)
    assert done.exit_code == 0, done.output


def under_hold(team: Team, consumer: SafeConsumer, journals: Path, *limit: str) -> None:
    """
    Have the group held by the operator, with records fetched and most not delivered.

    What keeps them back until then is a hold of the member's own. Some records have
    come.
    """
    consumer.pause_all(owner="member")
    with Polled(consumer):
        operate(team, journals, "pause", "--reason", "x", "--wait", *limit)
    consumer.resume_all(owner="member")


def some_records(consumer: SafeConsumer) -> None:
    """Poll until some records have come."""
    got: dict[TopicPartition, list[int]] = {}
    poll_until(consumer, lambda: bool(got), got=got)


def positions(team: Team, consumers: Sequence[SafeConsumer]) -> Mapping[str, int]:
    """Return where the members stand in what they own."""
    return {
        str(tp.partition): consumer.position(tp)
        for consumer in consumers
        for tp in sorted(set(team.partitions) & consumer.assignment())
    }


def proven(team: Team, journals: Path, each: int) -> None:
    """Have the journals judged: all that was written has come, and nothing while held."""
    producer = JournalWriter(journals, member="producer")
    for tp in team.partitions:
        name = f"{tp.topic}:{tp.partition}"
        producer.write("acked", {"tp": name, "first": 0, "last": each - 1})
    assert judged(journals, clock_skew=0.2) == ([], set())


@pytest.mark.contract("G1", "G2", "G5")
def test_an_operators_hold_stands_while_the_broker_is_away(
    team: Team, journals: Path, outage: Outage
) -> None:
    """For who had heard of it, and for a member that joins when the broker is back."""
    first = member(team, "a", journals)
    some_records(first)
    under_hold(team, first, journals)
    first.commit()
    before = positions(team, [first])
    with outage.lasting():
        end = time.monotonic() + AWAY
        assert poll_until(first, lambda: time.monotonic() > end) == {}
        assert first.paused() == set(team.partitions)
    second = member(team, "b", journals)
    both = [first, second]
    came = poll_all(
        both, lambda: all(len(one.assignment()) == 2 for one in both), timeout=60.0
    )
    came += poll_all(both, lambda: all(map(team.is_ungated, both)))
    team.produce(5)
    with Polled(first), Polled(second):
        waited = run(team, "wait", "quiet", team.topic, "--group", team.group)
        assert waited.exit_code == 0, waited.output
    assert came == []
    assert positions(team, both) == before
    operate(team, journals, "resume")
    left = 4 * (EACH + 5) - sum(before.values())
    kept: list[object] = []
    while len(kept) < left:
        kept += poll_all(both, lambda: True)
    for one in both:
        one.commit()
        one.close()
    proven(team, journals, EACH + 5)


@pytest.mark.contract("G6")
def test_an_operators_hold_ends_at_its_time_while_the_broker_is_frozen(
    team: Team, journals: Path, freeze: Outage
) -> None:
    """Never early; what was fetched comes then, without the broker."""
    consumer = member(team, "a", journals)
    some_records(consumer)
    began = time.monotonic()
    under_hold(team, consumer, journals, "--for", f"{LIMIT:g}s")
    assert time.monotonic() < began + LIMIT, "this machine is too slow for the test"
    with freeze.lasting():
        some_records(consumer)
        assert time.monotonic() >= began + LIMIT
    poll_until(consumer, lambda: set(positions(team, [consumer]).values()) == {EACH})
    consumer.close()
    proven(team, journals, EACH)
