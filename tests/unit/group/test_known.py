"""What the topics say, step by step: who reports, who ended, what is held, and when."""

import pytest
from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group import follower as module
from safeconsumer.group import report_wire, wire
from safeconsumer.group.commits import CommitWatch, Move
from safeconsumer.group.facts import GroupFacts
from safeconsumer.group.follower import Follower
from safeconsumer.group.known import NAMED_FOR, SILENT_AFTER, Known, Seen, Told
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.report_wire import STREAM, Kept
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import Survey
from safeconsumer.group.topic_reader import Remade
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.listing import short
from tests.unit.group.test_judging import facts, report

SETTINGS = Control(operator_topic="ops", group_topic="own", status_topic="status")
ALL = Seen(ends={}, is_heard=True)
START = 1_000_000.0
TP = TopicPartition("t", 0)


@frozen
class Record:
    """The parts of a record that are read."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int | None


class Topics:
    """Topics whose records are written and read at once, and clocks that are set."""

    def __init__(self, ahead=0.0):
        self.at = START  # the broker's time
        self.ahead = ahead  # of our own clock
        self.clock = LogClock(lambda: self.at + self.ahead, lambda: self.at)
        self.known = Known(SETTINGS, self.clock)
        self.offsets = dict.fromkeys(SETTINGS.all_topics, 0)
        self.written = []

    def write(self, name, key, value, at=None):
        when = self.at if at is None else at
        one = Record(key, value, self.offsets[name], int(when * 1000))
        self.offsets[name] += 1
        self.written.append((name, one))
        self.known.take({name: [one]}, self.positions)

    @property
    def positions(self):
        return {TopicPartition(name, 0): at for name, at in self.offsets.items()}

    def report(self, name, at=None, **said):
        made = report(name, 0, at_ms=int(self.at * 1000), **said)
        self.write("status", name.encode(), report_wire.encode_report(made), at)
        return made

    def hold(self, scope="@all", ttl_ms=None, *, lifts=False):
        hold = ControlHold("id", "x", ttl_ms)
        value = None if lifts else wire.encode_hold(hold)
        self.write("ops", wire.encode_key(ControlKey("g", "alice", scope)), value)

    def picture(self, *members, told=None, skew=0.0):
        asked = GroupFacts(state="Stable", members=members, committed={})
        told = told or self.known.told()
        return told.pictures(["g"], Survey(facts={"g": asked}), skew, ALL)["g"]


def names(reports):
    return [one.client_id for one in reports]


# ---------------------------------------------------------------- who reports


def test_who_reports_no_more_is_named():
    """And for as long if it does not list it: it may be frozen, and go on."""
    topics = Topics()
    for name in ("a", "b"):
        topics.report(name)
    assert names(topics.picture().reports) == ["a", "b"]
    topics.at += SILENT_AFTER + 1
    topics.report("a")
    seen = topics.picture(facts("a"), facts("b"))
    assert (names(seen.reports), names(seen.late)) == (["a"], ["b"])
    assert names(topics.picture(facts("a")).late) == ["b"]
    topics.at += NAMED_FOR
    topics.report("a")
    assert names(topics.picture(facts("a"), facts("b")).late) == []


@pytest.mark.parametrize("ahead", [0.0, -3600.0])
def test_the_last_that_reported_is_named_as_long(ahead):
    """Nobody tells the broker's time then: our clocks count, with the allowed skew."""
    topics = Topics(ahead)
    topics.report("a")
    topics.at += NAMED_FOR + SETTINGS.clock_skew
    told = topics.known.told()
    assert (names(told.late), told.groups) == (["a"], {"g"})
    assert names(topics.picture(told=told).late) == ["a"]
    topics.at += 1
    told = topics.known.told()
    assert (told.groups, topics.picture(told=told).late) == (set(), ())


def test_members_of_long_ago_are_forgotten_though_nobody_asks():
    """A console that only writes reads reports, too, and each start is another member."""
    topics = Topics()
    for number in range(2_000):
        topics.at += 1
        topics.report(f"m{number}")
    assert len(topics.known._heard) < 700


def test_a_member_that_stopped_is_named_while_kafka_lists_it():
    """A static member leaves no group when it is closed."""
    topics = Topics()
    topics.report("a")
    topics.report("a", state="stopped")
    seen = topics.picture(facts("a"))
    assert (seen.reports, [one.state for one in seen.late]) == ((), ["stopped"])
    seen = topics.picture()
    assert (seen.late, topics.known.told().groups) == ((), set())


@pytest.mark.parametrize(
    ("state", "busy", "is_named"),
    [("ready", {}, True), ("stopped", {}, False), ("stopped", {"t": ((0, 0),)}, True)],
    ids=short,
)
def test_a_stream_that_ended(state, busy, *, is_named):
    topics = Topics()
    topics.report("s", state=state, busy=busy, kind=STREAM)
    topics.at += SILENT_AFTER + 1
    topics.report("a")
    seen = topics.picture()
    assert (names(seen.reports), names(seen.gone)) == (["a"], ["s"] * is_named)


@pytest.mark.parametrize("back", [SILENT_AFTER + 5, 3600], ids="{:.0f} s".format)
def test_a_report_from_before_the_broker_s_clock_went_back_is_no_sign_of_life(back):
    """Its member would count as alive for as long as the clock went back."""
    topics = Topics()
    topics.report("dead", START + back)
    topics.report("live")
    assert names(topics.picture().reports) == ["live"]


def test_a_record_without_a_time_tells_none():
    """Taken for a time it would put everybody's last report into the future."""
    topics = Topics()
    topics.report("a")
    topics.report("b", -0.001)
    assert topics.known.reported_at == START


def test_a_garbled_report_is_nobody_s():
    topics = Topics()
    topics.write("status", b"x", b"{")
    topics.write("status", b"y", None)
    assert topics.known.told() == Told(newest=START, now=START, wall=START)


# ---------------------------------------------------------------- what is held


def test_a_hold_that_is_over_is_gone():
    topics = Topics()
    topics.hold(ttl_ms=10_000)
    topics.report("a")
    assert len(topics.picture().standing) == 1
    topics.at += 11
    topics.report("a")
    assert topics.picture().standing == ()
    assert len(topics.picture().just_over) == 1
    topics.at += SILENT_AFTER
    topics.report("a")
    assert topics.picture().just_over == ()
    assert len(topics.known.records) == 1


def test_if_nobody_tells_the_time_records_prove_it():
    topics = Topics(ahead=-3600)
    topics.hold("t:0", ttl_ms=10_000)
    topics.at += 11
    seen = topics.picture()
    assert (len(seen.standing), seen.now) == (1, None)
    topics.hold("t:1")
    assert [one.key.scope for one in topics.picture().standing] == ["t:1"]


def test_if_nobody_reports_a_hold_that_ended_by_this_clock_may_have_ended():
    """It is shown for as long as no record proves that it has."""
    topics = Topics()
    topics.report("a", state="stopped")
    topics.hold(ttl_ms=10_000)
    topics.at += 9
    seen = topics.picture()
    assert (seen.now, seen.lasting, seen.maybe_over) == (None, seen.standing, ())
    topics.at += 7 * 86_400
    seen = topics.picture()
    assert len(seen.standing) == 1
    assert (seen.lasting, seen.maybe_over) == (seen.standing, seen.standing)
    topics.hold("t:1")
    assert [one.key.scope for one in topics.picture().standing] == ["t:1"]


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_a_wrong_clock_waits_for_one_report(ahead):
    """Judged by the broker's clock, as members do: what is over is left out."""
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
        told = topics.known.told(listen)
        assert (told.now, names(told.reports)) == (START + 3, ["a"])
        scopes = [one.key.scope for one in topics.picture(told=told).standing]
        assert scopes == ["t:0"]
    assert len(listened) == 1


def test_where_nobody_reports_nobody_is_waited_for():
    topics = Topics(ahead=3600)
    topics.hold()
    topics.report("a", state="stopped")
    told = topics.known.told(lambda: 1 / 0)
    assert (told.now, len(told.standing)) == (None, 1)


def test_a_topic_that_is_made_again():
    """Members keep what they had, so it is shown, and a banner; new holds are seen."""
    topics = Topics()
    topics.report("a")
    topics.hold("t")
    topics.known.begin_again([Remade("ops", 1, 0)])
    topics.offsets["ops"] = 0
    assert topics.known.remade(topics.known.told()) == ("ops",)
    topics.hold("other")
    assert len(topics.picture().standing) == 2
    topics.hold("t", lifts=True)
    assert topics.known.remade(topics.known.told()) == ()
    topics.report("a", kept=(Kept(owner="operator:x", scope="t", line="t"),))
    assert topics.known.remade(topics.known.told()) == ("ops",)


def test_what_a_silent_member_commits_is_watched():
    topics, watch = Topics(), CommitWatch()
    topics.hold()
    members = (facts("silent", TP),)

    def moves(offset, *, is_heard=True):
        asked = GroupFacts(state="Stable", members=members, committed={TP: offset})
        told = topics.known.told()
        return told.moves(watch, {"g": asked}, is_heard=is_heard)

    assert moves(5) == {"g": {}}
    assert moves(9) == {"g": {TP: Move(5, 9)}}
    assert moves(12, is_heard=False) == {"g": {}}


# ---------------------------------------------------------------- publishing


class Fed(Topics):
    """Stands in for the follower's reader: what it reads is given."""

    is_complete = True

    def __init__(self):
        super().__init__()
        self.polled = {}

    def turn(self, _):
        polled, self.polled = self.polled, {}
        return polled

    def silence(self):
        return 0.0


class Following:
    """A follower whose threads are not begun, and what is written for it to read."""

    def __init__(self, patch):
        self.fed = Fed()
        self.follower = Follower({}, SETTINGS)
        patch.setattr(self.follower, "_reader", self.fed)
        patch.setattr(self.follower, "_known", Known(SETTINGS, self.fed.clock))

    def turn(self):
        """Let it read what was written last; return the snapshot's version."""
        name, one = self.fed.written[-1]
        self.fed.polled = {name: [one]}
        self.follower._turn()
        return self.follower.snapshot().version


@pytest.fixture
def following(monkeypatch):
    monkeypatch.setattr(module, "_PUBLISH_EVERY", 1000.0)
    return Following(monkeypatch)


def test_reports_are_published_together_and_holds_at_once(following):
    """A thousand members would have made a snapshot for each of their reports."""
    for name in ("a", "b", "c"):
        following.fed.report(name)
        assert following.turn() == 1
    following.fed.hold()
    assert following.turn() == 2
    told = following.follower._told
    assert (names(told.reports), len(told.standing)) == (["a", "b", "c"], 1)


def test_who_was_not_listened_to_is_not_silent(following):
    """The reader is in trouble, the survey goes on: reports stay as they were."""
    one = following.follower
    following.fed.report("a")
    following.turn()
    one._lose(one._read, module.Trouble("no answer", ""))
    following.fed.at += SILENT_AFTER + 1
    with one._lock:
        one._publish()
    assert (names(one._told.reports), one.snapshot().trouble is None) == (["a"], False)
    following.fed.hold()
    following.turn()
    assert (names(one._told.reports), one.snapshot().trouble) == ([], None)


@pytest.mark.parametrize(("took", "rest"), [(0.1, 1), (0.5, 2.5), (4, 1), (25, 1)])
def test_a_slow_survey_is_not_paid_for_with_old_facts(took, rest):
    """One question that took 25 s made two minutes in which nothing was asked."""
    assert module._rest_after(took) == rest


@pytest.mark.parametrize(
    ("now", "wall", "until"),
    [(100.0, 104.0, 104.0), (100.0, 200.0, 100.0), (None, 200.0, 200.0)],
    ids=["the clocks agree", "this machine's is ahead", "nobody reports"],
)
def test_the_topics_are_read_until_now(now, wall, until):
    assert Told(now=now, newest=100.0, wall=wall).read_until == until
