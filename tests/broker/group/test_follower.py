"""The follower: what it publishes is what a command would see, whatever happens."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError

from safeconsumer.group import clients, known, topic_reader, topics
from safeconsumer.group import follower as module
from safeconsumer.group.follower import Follower, Snapshot
from safeconsumer.group.judging import Judge
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import changes, new_hold, publish
from safeconsumer.group.report_wire import Report
from safeconsumer.group.settings import Control
from tests.harness.console.harness import settled
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker

CONSOLE = "safeconsumer-console"


def follower(team: Team, settings: Control | None = None) -> Follower:
    return Follower(team.broker.client_config, settings or team.settings)


def until(
    following: Follower, is_so: Callable[[Snapshot], object], what: str
) -> Snapshot:
    """Wait until a snapshot is so, and return it."""
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
        team.operator_lifts(team.topic)
        until(following, lambda one: not one.remade, "that nothing is missing")


# ---------------------------------------------------------------- ages


@pytest.mark.parametrize(("took", "rest"), [(0.1, 1), (0.5, 2.5), (4, 1), (25, 1)])
def test_a_slow_survey_is_not_paid_for_with_old_facts(took: float, rest: float) -> None:
    """One question that took 25 s made two minutes in which nothing was asked."""
    assert module._rest_after(took) == rest


@pytest.mark.embedded_broker
def test_who_was_not_listened_to_is_not_silent(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is in trouble, the survey goes on: reports stay as they were."""
    monkeypatch.setattr(known, "SILENT_AFTER", 3.0)
    monkeypatch.setattr(topic_reader, "_SILENCE", 1.0)
    members = settled(team, "a")
    with Polled(*members), follower(team) as following:
        until(following, lambda one: is_well(one) and _reports(team, one), "a report")
        late = team.broker.hold("Fetch", CONSOLE)
        until(following, lambda one: one.trouble is not None, "trouble")
        lost_at = time.monotonic()
        wait_for(
            lambda: (following._asked.at or 0) > lost_at + 3,
            "a survey of when it would have been silent",
        )
        assert _reports(team, following.snapshot())
        late.release()


def _reports(team: Team, snapshot: Snapshot) -> tuple[Report, ...]:
    picture = snapshot.pictures.get(team.group)
    return () if picture is None else picture.reports


# ---------------------------------------------------------------- costs


def test_without_a_status_topic_nothing_begins_anew(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made an admin client and a consumer every ten seconds, for good."""
    made: list[str] = []
    reader = clients.reader
    monkeypatch.setattr(
        clients, "reader", lambda base: (made.append(""), reader(base))[1]
    )
    monkeypatch.setattr(module, "_LOOK_FOR_STATUS", 0.0)
    with follower(team, team.with_settings(status_topic=None)) as following:
        until(following, is_well, "what can be read")
        turn = following._turn
        turns: list[str] = []
        monkeypatch.setattr(
            following, "_turn", lambda *given: (turns.append(""), turn(*given))
        )
        wait_for(lambda: len(turns) > 3, "turns")
    assert len(made) == 2  # one that reads, and one that asks


def test_a_status_topic_that_is_made_later_is_read(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then holds are known all the same; who obeys them is not."""
    monkeypatch.setattr(module, "_LOOK_FOR_STATUS", 0.0)
    settings = team.with_settings(status_topic=f"late-{team.group}")
    team.operator_holds(team.topic)
    with follower(team, settings) as following:
        known = until(
            following, lambda one: is_well(one) and one.unread, "what is missing"
        )
        picture = known.pictures[team.group]
        assert len(picture.standing) == 1
        assert f"no topic late-{team.group}" in picture.unread[0]
        assert picture.reporting is None
        team.create(str(settings.status_topic), topics.STATUS_SETTINGS)
        until(following, lambda one: is_well(one) and not one.unread, "the topic")


def test_one_group_that_cannot_be_asked_about_leaves_the_others(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator is not there; it ended the survey of all groups, each time."""
    (member,) = settled(team, "a")
    member.commit()
    asking = KafkaAdminClient.list_group_offsets

    def asked(self: KafkaAdminClient, names: list[str]) -> Any:  # noqa: ANN401 - upstream's
        if "bad" in names:
            message = "bad: its coordinator is not there"
            raise CoordinatorNotAvailableError(message)
        return asking(self, names)

    monkeypatch.setattr(KafkaAdminClient, "list_group_offsets", asked)
    wanted = changes("bad", "alice", ["@all"], new_hold("test", None))
    publish(lambda: team.writer, team.settings.operator_topic, wanted, 10.0)
    with Polled(member), follower(team) as following:
        known = until(
            following,
            lambda one: (
                is_well(one)
                and "bad" in one.pictures
                and one.pictures["bad"].unread
                and any(group == team.group for group, _ in one.moved)
            ),
            "both groups",
        )
    bad, good = known.pictures["bad"], known.pictures[team.group]
    assert "its coordinator is not there" in bad.unread[0]
    assert not Judge(bad).quietness(bad.standing).is_reached
    assert set(good.facts.committed) == set(team.partitions)
