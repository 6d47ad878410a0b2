"""Tests the members, holds and snapshots that the board shows after each record."""

import time
from types import SimpleNamespace

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group import follower as module
from safeconsumer.group.board import NAMED_FOR, SILENT_AFTER, Board
from safeconsumer.group.commits import Move
from safeconsumer.group.facts import GroupFacts
from safeconsumer.group.follower import Follower
from safeconsumer.group.report_wire import STREAM, KeptHold
from safeconsumer.group.survey import Survey
from safeconsumer.group.topic_reader import RecreatedTopic
from safeconsumer.group.view import Times
from tests.harness.group.board import SETTINGS, START, Topics
from tests.harness.group.views import facts
from tests.harness.listing import short

TP = TopicPartition("t", 0)
QUERIES = SimpleNamespace(admin=None)


def names(reports):
    return [one.client_id for one in reports]


# ---------------------------------------------------------------- members that report


def test_member_that_stopped_reporting_is_named_for_a_minute():
    """A frozen member may resume, so it is named even if Kafka does not list it."""
    topics = Topics()
    for name in ("a", "b"):
        topics.report(name)
    assert names(topics.view().reports) == ["a", "b"]
    topics.at += SILENT_AFTER + 1
    topics.report("a")
    seen = topics.view(facts("a"), facts("b"))
    assert (names(seen.reports), names(seen.former_reports)) == (["a"], ["b"])
    assert names(topics.view(facts("a")).former_reports) == ["b"]
    topics.at += NAMED_FOR
    topics.report("a")
    assert names(topics.view(facts("a"), facts("b")).former_reports) == []


@pytest.mark.parametrize("ahead", [0.0, -3600.0])
def test_former_member_is_named_for_a_minute_if_no_other_member_reports(ahead):
    """Without a report of the broker's time, the board uses the local clock plus the skew."""
    topics = Topics(ahead, skew=30.0)
    topics.report("a")
    topics.at += NAMED_FOR + 30.0
    assert names(topics.view().former_reports) == ["a"]
    assert topics.board.groups == {"g"}
    topics.at += 1
    assert (topics.view().former_reports, topics.board.groups) == ((), set())


def test_board_drops_old_reports_even_if_no_view_is_requested():
    topics = Topics()
    topics.report("of the future", START + 1e6)
    for number in range(2_000):
        topics.at += 1
        topics.report(f"m{number}")
    assert len(topics.board._last) < 700


def test_stopped_member_is_named_while_kafka_lists_it():
    """A static member does not leave the group when it closes."""
    topics = Topics()
    topics.report("a")
    topics.report("a", state="stopped")
    seen = topics.view(facts("a"))
    assert (seen.reports, [one.state for one in seen.former_reports]) == (
        (),
        ["stopped"],
    )
    assert (topics.view().former_reports, topics.board.groups) == ((), set())


@pytest.mark.parametrize(
    ("state", "busy", "is_named"),
    [("ready", {}, True), ("stopped", {}, False), ("stopped", {"t": ((0, 0),)}, True)],
    ids=short,
)
def test_ended_stream_is_named_as_lost_unless_it_stopped_between_batches(
    state, busy, *, is_named
):
    topics = Topics()
    topics.report("s", state=state, busy=busy, kind=STREAM)
    topics.at += SILENT_AFTER + 1
    topics.report("a")
    seen = topics.view()
    assert (names(seen.reports), names(seen.lost_streams)) == (["a"], ["s"] * is_named)


@pytest.mark.parametrize("back", [SILENT_AFTER + 5, 3600], ids="{:.0f} s".format)
def test_report_from_before_the_clock_was_set_back_does_not_count_as_recent(back):
    topics = Topics()
    topics.report("dead", START + back)
    topics.report("live")
    assert names(topics.view().reports) == ["live"]


def test_record_without_a_timestamp_is_not_the_newest_report():
    topics = Topics()
    topics.report("a")
    topics.report("b", -0.001)
    assert topics.board.reported_at == START


def test_garbled_report_is_ignored():
    topics = Topics()
    topics.write("status", b"x", b"{")
    topics.write("status", b"y", None)
    view = topics.view()
    assert view.times == Times(START, START, START)
    assert (view.is_known, topics.board.groups) == (True, set())


# ---------------------------------------------------------------- holds


def test_expired_hold_is_removed_and_listed_as_recently_expired():
    topics = Topics()
    topics.hold(ttl_ms=10_000)
    topics.report("a")
    assert len(topics.view().holds) == 1
    topics.at += 11
    topics.report("a")
    assert topics.view().holds == ()
    assert len(topics.view().recently_expired) == 1
    topics.at += SILENT_AFTER
    topics.report("a")
    assert topics.view().recently_expired == ()
    assert len(topics.board.records) == 1


def test_hold_that_is_over_only_by_the_local_clock_is_marked_as_maybe_ended():
    """The board shows the hold until a record's timestamp proves that it has expired."""
    topics = Topics()
    topics.report("a", state="stopped")
    topics.hold(ttl_ms=10_000)
    topics.at += 9
    seen = topics.view()
    assert (seen.times.now, seen.lasting, seen.maybe_ended) == (None, seen.holds, ())
    topics.at += 7 * 86_400
    seen = topics.view()
    assert len(seen.holds) == 1
    assert (seen.lasting, seen.maybe_ended) == (seen.holds, seen.holds)
    topics.hold("t:1")
    assert [one.key.scope for one in topics.view().holds] == ["t:1"]


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_view_with_a_wrong_local_clock_waits_for_one_report(ahead):
    topics = Topics(ahead)
    topics.hold("t:0", ttl_ms=600_000)
    topics.hold("t:1", ttl_ms=1)
    topics.report("a")
    listened = []

    def listen():
        topics.at += 3
        topics.report("a")
        listened.append(topics.at)
        return topics.at

    for _ in range(2):
        view = topics.view(listen=listen)
        assert (view.times.now, names(view.reports)) == (START + 3, ["a"])
        assert [one.key.scope for one in view.holds] == ["t:0"]
    assert len(listened) == 1


def test_view_does_not_wait_for_a_report_if_no_member_reports():
    topics = Topics(ahead=3600)
    topics.hold()
    topics.report("a", state="stopped")
    view = topics.view(listen=lambda: 1 / 0)
    assert (view.times.now, len(view.holds)) == (None, 1)


@pytest.mark.contract("G8")
@pytest.mark.parametrize("name", SETTINGS.topics)
def test_timestamp_set_by_a_client_does_not_prove_that_a_hold_ended(name):
    """The clock of a member, or of an operator, is two hours ahead."""
    topics = Topics()
    topics.by_hosts.add(name)
    topics.hold("t", ttl_ms=3_600_000)
    ahead = topics.at + 7200
    if name == "status":
        topics.report("a", ahead)
        topics.view(listen=lambda: ahead)
    else:
        topics.hold("other", at=ahead)
    seen = topics.view()
    assert (seen.times.now, len(seen.lasting)) == (None, len(seen.holds))
    assert seen.times.proven == (START if name == "status" else 0.0)
    assert topics.board.has_reporters is (name == "status")


def test_holds_stay_in_force_after_their_topic_is_recreated():
    """Members keep the old holds and also read new holds."""
    topics = Topics()
    topics.report("a")
    topics.hold("t")
    topics.board.topic_recreated([RecreatedTopic("ops", 1, 0)])
    topics.offsets["ops"] = 0
    assert (len(topics.view().holds), topics.board.remade) == (1, ("ops",))
    topics.hold("other")
    assert len(topics.view().holds) == 2
    topics.hold("t", lifts=True)
    assert (len(topics.view().holds), topics.board.remade) == (1, ())
    topics.report("a", kept=(KeptHold(owner="operator:x", scope="t", line="t"),))
    assert (len(topics.view().kept), topics.board.remade) == (1, ("ops",))


def test_recreated_topic_is_named_while_members_obey_a_hold_missing_from_it():
    topics = Topics(skew=30.0)
    topics.hold("t", ttl_ms=20_000)
    topics.board.topic_recreated([RecreatedTopic("ops", 1, 0)])
    topics.at += 80
    topics.report("a", skew=300.0)
    assert (len(topics.view().holds), topics.board.remade) == (1, ("ops",))
    topics.at += 300
    topics.report("a", skew=300.0)
    assert (len(topics.view().holds), topics.board.remade) == (0, ())


# ---------------------------------------------------------------- publishing


class Fed(Topics):
    """A stand-in for the follower's reader, which returns records that the test supplies."""

    is_complete = True

    def __init__(self):
        super().__init__()
        self.polled = {}

    def turn(self, _):
        polled, self.polled = self.polled, {}
        return polled

    def age(self):
        return 0.0


class Following:
    """A follower whose threads are not started, and a fake reader of its topics."""

    def __init__(self, patch):
        self.fed = Fed()
        self.follower = Follower({}, SETTINGS)
        patch.setattr(self.follower, "_reader", self.fed)
        patch.setattr(self.follower, "_board", Board(SETTINGS, self.fed.clock))

    def turn(self):
        """Let the follower read the last record, and return the snapshot's version."""
        name, one = self.fed.written[-1]
        self.fed.polled = {name: [one]}
        self.follower._turn()
        return self.follower.snapshot().version


@pytest.fixture
def following(monkeypatch):
    monkeypatch.setattr(module, "_PUBLISH_EVERY", 1000.0)
    return Following(monkeypatch)


def test_reports_are_published_in_batches_and_holds_immediately(following):
    for name in ("a", "b", "c"):
        following.fed.report(name)
        assert following.turn() == 1
    following.fed.hold()
    assert following.turn() == 2
    view = following.follower.snapshot().views["g"]
    assert (names(view.reports), len(view.holds)) == (["a", "b", "c"], 1)


def test_snapshot_version_changes_with_the_content_of_the_page(following, monkeypatch):
    """The console renders its page once per version."""

    def version(**fields):
        following.fed.at += 1
        following.fed.report("a", **fields)
        following.follower._publish_at = 0.0
        return following.turn()

    first = version()
    for _ in range(3):
        assert version() == first
    (report,) = following.follower.snapshot().views["g"].reports
    assert report.at_ms == int(following.fed.at * 1000)
    assert version(quiet={}) == first + 1
    for _ in range(2):
        following.follower._lose(following.follower._ask, module.Trouble("away", ""))
    assert following.follower.snapshot().version == first + 2
    monkeypatch.setattr(module, "_RENEW_EVERY", 0.0)
    assert version(quiet={}) == first + 3


def test_time_since_the_last_report_keeps_growing(following):
    one = following.follower
    following.fed.report("b")
    following.turn()
    shown = []
    for seconds in (SILENT_AFTER + 1, 10):
        following.fed.at += seconds
        with one._lock:
            one._publish()
        (member,) = one.snapshot().views["g"].members
        shown.append(member.verdict.sentence[:25])
    assert shown == ["has not reported for 16 s", "has not reported for 26 s"]


def test_members_do_not_count_as_silent_while_the_reader_fails(following):
    one = following.follower
    following.fed.report("a")
    following.turn()
    one._lose(one._read, module.Trouble("no answer", ""))
    following.fed.at += SILENT_AFTER + 1
    with one._lock:
        one._publish()
    assert names(one.snapshot().views["g"].reports) == ["a"]
    assert one.snapshot().trouble is not None
    following.fed.hold()
    following.turn()
    assert names(one.snapshot().views["g"].reports) == []
    assert one.snapshot().trouble is None


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("age", "is_newer"), [(0.0, True), (60.0, False)], ids=["read", "not read"]
)
def test_snapshot_is_no_newer_than_the_last_answer_about_reports(
    following, monkeypatch, age, is_newer
):
    """The survey continues although no fetch of the control topics is answered."""
    monkeypatch.setattr(module, "survey_of", lambda *_: Survey(facts={}))
    monkeypatch.setattr(module, "ends_of", lambda *_: {TopicPartition("ops", 0): 0})
    monkeypatch.setattr(module, "with_lags", lambda survey, *_: survey)
    following.fed.age = lambda: age
    following.fed.report("a")
    following.turn()
    one = following.follower
    known = one.snapshot().as_of
    one._ask_once(QUERIES, time.monotonic())
    assert (one.snapshot().as_of > known) is is_newer


@pytest.mark.contract("G8")
def test_commit_from_before_a_hold_does_not_count_as_a_move(following, monkeypatch):
    """The hold is placed while the follower queries the group."""
    owner, one = facts("silent", TP), following.follower
    offsets = iter([5, 9, 12])

    def survey_of(*_):
        if following.fed.written[-1][0] != "ops":
            following.fed.hold()
            following.turn()
        committed = {TP: next(offsets)}
        asked = GroupFacts(state="Stable", members=(owner,), committed=committed)
        return Survey(facts={"g": asked})

    monkeypatch.setattr(module, "survey_of", survey_of)
    monkeypatch.setattr(module, "ends_of", lambda *_: {})
    monkeypatch.setattr(module, "with_lags", lambda survey, *_: survey)
    one._names = frozenset(SETTINGS.topics)
    following.fed.report("a")
    following.turn()
    moves = []
    for _ in range(3):
        one._ask_once(QUERIES, 0.0)
        moves.append(one.snapshot().views["g"].moves)
    assert moves == [{}, {}, {TP: Move(9, 12)}]


def test_lags_of_unheld_groups_are_requested_every_ten_seconds(following, monkeypatch):
    asked, there = [], ["free", "g", "gone"]

    def survey_of(*_):
        known = GroupFacts(state="Empty", members=(), committed={TP: 1})
        return Survey(facts=dict.fromkeys(there, known))

    def with_lags(survey, groups, *_):
        asked.append(sorted(groups))
        return evolve(survey, lags={one: {TP: len(asked)} for one in groups})

    monkeypatch.setattr(module, "survey_of", survey_of)
    monkeypatch.setattr(module, "ends_of", lambda *_: {})
    monkeypatch.setattr(module, "with_lags", with_lags)
    one = following.follower
    one._names = frozenset(SETTINGS.topics)
    following.fed.hold()
    following.turn()
    for at in (0.0, 1.0, 10.0):
        one._ask_once(QUERIES, at)
        there = ["free", "g"]
        views = one.snapshot().views
    assert asked == [["free", "g", "gone"], ["g"], ["free", "g"]]
    assert {name: view.whole_lag for name, view in views.items()} == {"free": 3, "g": 3}


@pytest.mark.parametrize(("took", "rest"), [(0.1, 1), (0.5, 2.5), (4, 1), (25, 1)])
def test_delay_after_a_slow_survey_is_shortened_to_keep_answers_fresh(took, rest):
    assert module._rest_after(took) == rest


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("now", "wall", "until"),
    [(100.0, 104.0, 104.0), (100.0, 200.0, 100.0), (None, 200.0, 90.0)],
    ids=["the clocks agree", "the local clock is ahead", "no reports"],
)
def test_topics_are_reported_as_read_up_to_a_proven_time(now, wall, until):
    board = Board(SETTINGS)
    board.times = Times(now, 90.0, wall)
    assert board.read_until == until
