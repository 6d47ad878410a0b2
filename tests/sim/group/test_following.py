"""The follower: what it publishes is what a command would see, whatever happens."""

from safeconsumer.group import clients, topics
from safeconsumer.group import follower as module
from safeconsumer.group.follower import Follower
from safeconsumer.group.operator import Operator
from tests.harness.group.settled import settled
from tests.harness.members import Polled
from tests.harness.waiting import wait_for
from tests.sim.group.teams import played


def follower(team, settings=None):
    return Follower(team.broker.client_config, settings or team.settings)


def until(following, is_so, what):
    """Wait until a snapshot is so, and return it."""
    found = []

    def look():
        found[:] = [following.snapshot()]
        return bool(is_so(found[0]))

    wait_for(look, what)
    return found[0]


def is_well(snapshot):
    return snapshot.is_complete and snapshot.trouble is None


@played()
def test_it_sees_what_a_command_sees(team):
    """One judge, one fold: pages and ``status`` cannot disagree."""
    members = settled(team, "a", "b")
    team.operator_holds(team.topic)
    operator = Operator(team.broker.client_config, team.settings)
    with Polled(*members), follower(team) as following, operator:

        def is_like(snapshot):
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


@played()
def test_a_group_that_is_held_before_it_exists(team):
    """Brokers of 4.0 answer with an error: there is none, and nothing is unknown."""
    operator = Operator(team.broker.client_config, team.settings)
    team.operator_holds("@all")
    with follower(team) as following, operator:

        def is_like(snapshot):
            picture = snapshot.pictures.get(team.group)
            return picture is not None and picture.facts == operator.group(team.group)

        seen = until(following, is_like, "the same facts").pictures[team.group]
        assert (seen.facts.is_known, seen.unread) == (False, ())


@played()
def test_without_control_topics_it_says_what_to_do(team):
    """Groups are listed all the same; and it goes on once the topics are made."""
    settings = team.with_settings(operator_topic=f"late-{team.group}")
    with follower(team, settings) as following:
        lost = until(following, lambda one: one.trouble is not None, "trouble")
        assert lost.trouble is not None
        assert "run safeconsumer control init" in lost.trouble.detail
        assert not lost.is_complete
        team.create(settings.operator_topic, topics.HOLDS_SETTINGS)
        until(following, is_well, "the topic that was made")


@played()
def test_without_a_status_topic_nothing_begins_anew(team, monkeypatch):
    """It made an admin client and a consumer every ten seconds, for good."""
    made = []
    reader = clients.reader
    monkeypatch.setattr(
        clients, "reader", lambda base: (made.append(""), reader(base))[1]
    )
    monkeypatch.setattr(module, "_LOOK_FOR_STATUS", 0.0)
    with follower(team, team.with_settings(status_topic=None)) as following:
        until(following, is_well, "what can be read")
        turn = following._turn
        turns = []
        monkeypatch.setattr(
            following, "_turn", lambda *given: (turns.append(""), turn(*given))
        )
        wait_for(lambda: len(turns) > 3, "turns")
    assert len(made) == 2  # one that reads, and one that asks


@played()
def test_a_status_topic_that_is_made_later_is_read(team, monkeypatch):
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
