"""The follower of control topics, and the reader of topics on which it is built."""

import time
from contextlib import closing

import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from safeconsumer.group import clients, topics
from safeconsumer.group import follower as module
from safeconsumer.group.follower import Follower
from safeconsumer.group.operator import Operator
from safeconsumer.group.topic_reader import TopicReader
from tests.harness.group.team import settled
from tests.harness.members import Polled
from tests.harness.waiting import wait_for
from tests.sim.group import operating
from tests.sim.group.teams import played
from tests.sim.lab import GROUP
from tests.sim.playing import simulated


def follower(team, settings=None):
    return Follower(team.broker.client_config, settings or team.settings)


def reading(base):
    return TopicReader(lambda: clients.reader(base))


def until(following, is_so, what):
    """Wait until a snapshot fulfils a condition, and return that snapshot."""
    found = []

    def look():
        found[:] = [following.snapshot()]
        return bool(is_so(found[0]))

    wait_for(look, what)
    return found[0]


def is_well(snapshot):
    return snapshot.is_complete and snapshot.trouble is None


@played()
def test_follower_and_command_have_the_same_result(team):
    """The follower and ``status`` use the same rules, so web pages and ``status`` agree."""
    members = settled(team, "a", "b")
    team.operator_holds(team.topic)
    operator = Operator(team.broker.client_config, team.settings)
    with Polled(*members), follower(team) as following, operator:

        def is_like(snapshot):
            view = snapshot.views.get(team.group)
            if view is None or not is_well(snapshot):
                return False
            looked = operator.look(team.group)
            ids = [{one.member_id for one in it.reports} for it in (view, looked)]
            return (
                view.facts == looked.facts
                and view.holds == looked.holds
                and view.ends == looked.ends
                and ids[0] == ids[1]
            )

        until(following, is_like, "the same view")


@played()
def test_group_held_before_it_exists_is_shown_without_members(team):
    """Kafka 4.0 brokers return an error that means a missing group, not an unknown one."""
    operator = Operator(team.broker.client_config, team.settings)
    team.operator_holds("@all")
    with follower(team) as following, operator:

        def is_like(snapshot):
            view = snapshot.views.get(team.group)
            return view is not None and view.facts == operator.group(team.group)

        seen = until(following, is_like, "the same facts").views[team.group]
        assert (seen.facts.is_known, seen.unread) == (False, ())


@played()
def test_follower_without_control_topics_names_the_command_that_creates_them(team):
    """The follower continues once the topics are created."""
    settings = team.with_settings(holds_topic=f"late-{team.group}")
    with follower(team, settings) as following:
        lost = until(following, lambda one: one.trouble is not None, "trouble")
        assert lost.trouble is not None
        assert "run safeconsumer control init" in lost.trouble.detail
        assert not lost.is_complete
        team.create(settings.holds_topic, topics.HOLDS_SETTINGS)
        until(following, is_well, "the topic that was made")


@played()
def test_follower_without_a_status_topic_keeps_its_clients(team, monkeypatch):
    """The follower used to create an admin client and a consumer every ten seconds."""
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
    # one client reads the topics, and the other makes all other requests
    assert len(made) == 2


@played()
def test_status_topic_that_is_created_later_is_read(team, monkeypatch):
    """Until the topic exists, the holds are known, but not the members that obey them."""
    monkeypatch.setattr(module, "_LOOK_FOR_STATUS", 0.0)
    settings = team.with_settings(status_topic=f"late-{team.group}")
    team.operator_holds(team.topic)
    with follower(team, settings) as following:
        known = until(
            following, lambda one: is_well(one) and one.unread, "what is missing"
        )
        view = known.views[team.group]
        assert len(view.holds) == 1
        assert f"no topic late-{team.group}" in view.unread[0]
        assert view.reporting is None
        team.create(str(settings.status_topic), topics.STATUS_SETTINGS)
        until(following, lambda one: is_well(one) and not one.unread, "the topic")


# ---------------------------------------------------------------- a reader of topics


@simulated(seeds=1, nightly=3)
def test_reader_busy_with_records_does_not_report_a_silent_broker(lab):
    """One response may have records for many polls, during which nothing is fetched."""
    operating.Operator(lab).write(*[(b"%d" % number, b"x") for number in range(100)])
    with closing(reading({**lab.connection, "max_poll_records": 10})) as reader:
        reader.begin(["ops"])
        assert reader.turn(500)
        fault = lab.cluster.fail("Fetch", is_held=True)
        while reader.turn(10):
            lab.sleep(2.0)
        assert reader.is_complete
        lab.sleep(60.0)  # as if the caller had been suspended
        reader.turn(500)
        fault.end()


@simulated(seeds=1, nightly=3)
def test_fetches_unanswered_for_five_seconds_raise(lab):
    operating.Operator(lab)
    with closing(reading(lab.connection)) as reader:
        reader.begin(["ops"])
        for _ in range(100):
            reader.turn(500)
        fault = lab.cluster.fail("Fetch", is_held=True)
        began = lab.now
        with pytest.raises(KafkaTimeoutError, match="no answer to a fetch for 5 s"):
            any(reader.turn(500) for _ in range(120))
        assert 5.0 <= lab.now - began <= 7.0
        fault.end()


@pytest.mark.contract("P20", "G2")
@pytest.mark.parametrize("is_open", [True, False], ids=["reading", "closed"])
@simulated(seeds=1, nightly=3)
def test_truncated_topic_is_read_from_its_beginning(lab, *, is_open):
    """An operator's hold may be among the records that the new leader has appended."""
    operating.Operator(lab).write(*[(b"%d" % number, b"old") for number in range(10)])
    base = {**lab.connection, "metadata_max_age_ms": 1000}
    with closing(reading(base)) as reader:
        reader.begin(["ops"])
        while not reader.is_complete:
            reader.turn(500)
        if not is_open:
            reader.close()
        lab.cluster.truncate("ops", 0, 5)
        lab.cluster.append("ops", 0, [b"new"] * 10)
        found = read_again(reader)
    assert found == [b"old"] * 5 + [b"new"] * 10


def read_again(reader):
    """Start again after each error, as callers do; return the values since the last start."""
    found = []
    for _ in range(40):
        try:
            found += [one.value for one in reader.turn(500).get("ops", [])]
        except KafkaError:
            reader.close()
            if reader.begin(["ops"]):
                found = []
    return found


@pytest.mark.contract("G8")
@operating.operated()
def test_snapshot_is_not_newer_than_a_fetch_that_is_late(lab, operator):
    """Each response arrives four seconds after the broker has written it."""
    lab.topic("t")
    console = "safeconsumer-console"
    with Follower(lab.connection, operating.CONTROL) as following:
        until(following, is_well, "a snapshot")
        fault = lab.cluster.fail("Fetch", delay=4.0, client_id=console)
        lab.sleep(10)
        operator.member("b")
        lab.until(lambda: any(map(_is_report, lab.cluster.requests)))
        lab.sleep(0.1)
        reported_at = time.monotonic()
        seen = until(following, lambda one: one.as_of > reported_at, "a later snapshot")
        fault.end()
    assert [one.client_id for one in seen.views[GROUP].reports] == ["b"]


def _is_report(request):
    return (request.api, request.client_id) == ("Produce", "b-control")
