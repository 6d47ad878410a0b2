"""
The follower: what it publishes is what a command would see, whatever happens.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.group import topics
from safeconsumer.group.follower import Follower, Snapshot
from safeconsumer.group.judging import Answer, Judge, Place
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control
from tests.console.harness import Polled, settled
from tests.group.team import Team
from tests.kafka.polling import poll_until
from tests.worker.lab import wait_for

pytestmark = pytest.mark.any_broker


@pytest.fixture
def team(kafka_broker: Any) -> Iterator[Team]:  # noqa: ANN401 - any kind
    with Team(kafka_broker) as made:
        yield made


def follower(team: Team, settings: Control | None = None) -> Follower:
    return Follower(team.broker.client_config, settings or team.settings)


def until(
    following: Follower, is_so: Callable[[Snapshot], object], what: str
) -> Snapshot:
    """
    Wait until a snapshot is so, and return it.
    """
    found: list[Snapshot] = []

    def look() -> bool:
        found[:] = [following.snapshot()]
        return bool(is_so(found[0]))

    wait_for(look, what)
    return found[0]


def is_well(snapshot: Snapshot) -> bool:
    return snapshot.is_complete and snapshot.trouble is None


def test_it_sees_what_a_command_sees(team: Team) -> None:
    """One judge, one fold: pages and ``status`` cannot disagree."""
    members = settled(team, "a", "b")
    team.operator_holds(team.topic)
    operator = Operator(team.broker.client_config, team.settings)
    with Polled(*members), follower(team) as following, operator:

        def is_like(snapshot: Snapshot) -> bool:
            picture = snapshot.pictures.get(team.group)
            if picture is None or not is_well(snapshot):
                return False
            looked = operator.look(team.group)
            ids = [{one.member_id for one in it.reports} for it in (picture, looked)]
            return (
                picture.facts == looked.facts
                and picture.standing == looked.standing
                and picture.ends == looked.ends
                and ids[0] == ids[1]
            )

        until(following, is_like, "the same picture")


def test_a_group_that_is_held_before_it_exists(team: Team) -> None:
    """Brokers of 4.0 answer with an error: there is none, and nothing is unknown."""
    operator = Operator(team.broker.client_config, team.settings)
    team.operator_holds("@all")
    with follower(team) as following, operator:

        def is_like(snapshot: Snapshot) -> bool:
            picture = snapshot.pictures.get(team.group)
            return picture is not None and picture.facts == operator.group(team.group)

        seen = until(following, is_like, "the same facts").pictures[team.group]
        assert (seen.facts.is_known, seen.unread) == (False, ())


def test_snapshots_do_not_change(team: Team) -> None:
    """A page that is being made is of one moment."""
    with follower(team) as following:
        before = until(following, is_well, "the first snapshot")
        (done,) = team.operator_holds(team.topic)
        topic = team.settings.operator_topic
        assert following.wait_for(topic, done.offset, 10)
        after = following.snapshot()
    assert after.version > before.version
    assert not before.records
    assert [one.key.scope for one in after.records] == [team.topic]


def test_a_hold_that_is_over_is_gone(team: Team) -> None:
    """By the broker's clock, which members' reports tell, and late by the skew."""
    members = settled(team, "a")
    with Polled(*members), follower(team) as following:
        team.operator_holds(team.topic, for_=1.0)
        until(following, lambda one: one.records, "the hold")
        gone = until(
            following,
            lambda one: is_well(one) and not one.pictures[team.group].standing,
            "its end",
        )
    assert gone.now is not None
    assert [one.hold is not None for one in gone.records] == [True]


def test_without_a_status_topic_it_says_so(team: Team) -> None:
    """Holds are known all the same; who obeys them is not."""
    settings = team.with_settings(status_topic=f"none-{team.group}")
    team.operator_holds(team.topic)
    with follower(team, settings) as following:
        known = until(following, is_well, "what can be read")
    picture = known.pictures[team.group]
    assert len(picture.standing) == 1
    assert f"no topic none-{team.group}" in picture.unread[0]


def test_without_control_topics_it_says_what_to_do(team: Team) -> None:
    """Groups are listed all the same; and it goes on once the topics are made."""
    settings = team.with_settings(operator_topic=f"late-{team.group}")
    with follower(team, settings) as following:
        lost = until(following, lambda one: one.trouble is not None, "trouble")
        assert lost.trouble is not None
        assert "run safeconsumer control init" in lost.trouble.detail
        assert not lost.is_complete
        team.create(settings.operator_topic, topics.HOLDS_SETTINGS)
        until(following, is_well, "the topic that was made")


@pytest.mark.embedded_broker
def test_the_broker_away_and_back(team: Team) -> None:
    """The last snapshot stays, and grows older."""
    team.operator_holds(team.topic)
    with follower(team) as following:
        known = until(following, lambda one: is_well(one) and one.records, "the hold")
        team.broker.down()
        lost = until(following, lambda one: one.trouble is not None, "trouble")
        assert lost.trouble is not None
        assert lost.trouble.said == "The broker does not answer."
        assert lost.pictures == known.pictures
        assert lost.heard_at == pytest.approx(known.heard_at, abs=5)
        team.broker.up()
        team.operator_lifts(team.topic)
        until(
            following,
            lambda one: is_well(one) and len(one.records) == 2,
            "what happened since",
        )


@pytest.mark.real_broker
def test_a_topic_that_is_made_again(team: Team) -> None:
    """Members keep what they had, so it is shown, and a banner; new holds are seen."""
    team.operator_holds(team.topic)
    with follower(team) as following:
        until(following, lambda one: is_well(one) and one.records, "the hold")
        name = team.settings.operator_topic
        with KafkaAdminClient(**team.broker.client_config) as admin:
            admin.delete_topics([name])
            wait_for(lambda: name not in admin.list_topics(), "the topic to be gone")
        team.create(name, topics.HOLDS_SETTINGS)
        again = until(following, lambda one: is_well(one) and one.remade, "a banner")
        assert again.remade == (name,)
        assert len(again.pictures[team.group].standing) == 1
        team.operator_holds("other")
        until(
            following,
            lambda one: len(one.pictures[team.group].standing) == 2,
            "the new hold",
        )


def test_a_plain_consumer_that_assigns_itself_is_seen_to_read(team: Team) -> None:
    """It is no member, so all that is seen of it is what it commits."""
    plain = KafkaConsumer(
        **team.broker.client_config,
        group_id=team.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        plain.assign(team.partitions)
        read_all(plain, 20)
        team.operator_holds("@all")
        with follower(team) as following:

            def place(known: Snapshot) -> Place:
                return Judge(known.pictures[team.group]).place(team.partitions[0])

            until(following, lambda one: is_well(one) and one.records, "the hold")
            known = until(following, lambda one: len(one.moved) == 4, "what is there")
            assert place(known).answer is Answer.UNKNOWN
            team.produce(5)
            read_all(plain, 20)
            flows = until(
                following,
                lambda one: place(one).answer is Answer.FLOWING,
                "that it flows",
            )
        seen = flows.pictures[team.group]
        assert not Judge(seen).quietness(seen.standing).is_reached
        assert "went on from 5 to 10" in place(flows).why
    finally:
        plain.close(autocommit=False)


def read_all(consumer: KafkaConsumer, records: int) -> None:
    got: dict[TopicPartition, list[int]] = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) >= records, got=got)
    consumer.commit()
