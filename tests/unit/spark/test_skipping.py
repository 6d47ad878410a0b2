"""Skips, losses of what is held, and commits, without Spark and Kafka."""

import threading

import pytest

from safeconsumer.errors import (
    HoldSettingError,
    ScopeSyntaxError,
    SparkSettingError,
    SparkSetupError,
    TargetTypeError,
)
from safeconsumer.spark import offsets
from safeconsumer.spark.committing import MARK, Committer, require_own
from tests.harness.listing import short
from tests.harness.spark.lab import LATEST, START, DeciderLab, Files, Undecided

ORDERS, RETURNS = ("orders", 0), ("returns", 0)


@pytest.fixture
def lab():
    return DeciderLab()


def again(lab, start, end, number=7):
    """Return where a batch of before a restart starts when it runs again."""
    facts = {"start": offsets.render(start), "end": offsets.render(end)}
    answer = lab.ask("again", batch=f"q\nid = 1\nrunId = 2\nbatch = {number}", **facts)
    assert ("start" in answer) == ("metric.skipped" in answer)
    return offsets.parse(answer.get("start", facts["start"]))


def restarted(lab):
    """Return another process's lab over the same checkpoint."""
    made = DeciderLab()
    made.files.texts.update(lab.files.texts)
    return made


@pytest.mark.contract("S8")
@pytest.mark.parametrize("limit", [None, LATEST], ids=["no limit", "limit"])
@pytest.mark.parametrize("held", [False, True], ids=["flowing", "held"])
def test_a_skip_ends_the_partition_there_and_reads_nothing_of_it(lab, limit, held):
    """Once: the next batch reads on, and offsets, who and why are reported."""
    if held:
        lab.controller.pause("orders", owner="ops")
    lab.controller.skip("orders:0", to=7, reason="poison", owner="alice")
    said = lab.batch(START, LATEST, end=limit)
    assert offsets.parse(said["end"]) == {ORDERS: 7, RETURNS: 8}
    assert offsets.parse(said["start"]) == {ORDERS: 7, RETURNS: 5}
    line = "orders:0: offsets 5 to 6 are skipped, by alice: poison"
    assert said["metric.skipped"] == line
    (event,) = lab.named("spark_offsets_skipped")
    assert event.skipped == (line,)
    said = lab.batch(offsets.parse(said["end"]), LATEST, number=8)
    assert offsets.parse(said["end"])[ORDERS] == (7 if held else 9)
    assert "start" not in said
    assert "metric.skipped" not in said


def test_a_limiter_gives_a_skipped_partition_no_share(lab):
    lab.controller.skip("orders:0", to=7, reason="poison")
    latest = offsets.render(LATEST)
    facts = {"start": offsets.render(START), "end": latest, "latest": latest}
    said = lab.ask("plan", limit="maximum", batch="batch = 1", **facts)
    assert offsets.parse(said["from"]) == {ORDERS: 9, RETURNS: 5}


@pytest.mark.parametrize(
    ("to", "latest", "why"),
    [
        (10, 9, "it ends at 9, and can be skipped up to there"),
        (5, 9, "it is read next anyway"),
        (4, 9, "5 is read next, and records would come twice"),
        (4, 3, "it ends at 3, and can be skipped up to there"),
        (0, None, "it does not exist now"),
    ],
    ids=short,
)
def test_a_skip_that_cannot_be_is_refused_and_dropped(to, latest, why):
    """The batch goes on without it, and progress and an event say why."""
    lab = DeciderLab(fails_on_loss=False)
    lab.controller.skip("orders:0", to=to, reason="poison")
    found = {RETURNS: 8} if latest is None else {ORDERS: latest, RETURNS: 8}
    said = lab.batch(START, found)
    assert "start" not in said
    assert said["metric.skipRefused"] == f"orders:0 cannot go on at {to}: {why}"
    assert len(lab.named("spark_skip_refused")) == 1
    assert "metric.skipRefused" not in lab.batch(START, found)


@pytest.mark.contract("S8")
def test_a_topic_that_was_made_again_is_read_from_any_offset_that_it_has(lab):
    """It ends before the offset that was to be read next; held it fails no query."""
    lab.controller.pause("orders")
    lab.controller.skip("orders:0", to=0, reason="made again")
    said = lab.batch(START, {ORDERS: 3, RETURNS: 8})
    assert offsets.parse(said["end"])[ORDERS] == 0
    assert (
        "reading begins at 0 of a topic that was made again" in said["metric.skipped"]
    )
    assert lab.controller.lag() == {ORDERS: 3}


@pytest.mark.contract("S8")
@pytest.mark.parametrize("was_planned", [True, False], ids=["in the log", "not yet"])
def test_a_skip_of_a_batch_that_was_cut_off_is_made_again(lab, was_planned):
    """The checkpoint has it: nobody has to ask for it a second time."""
    lab.controller.skip("orders:0", to=7, reason="poison")
    end = offsets.parse(lab.batch(START, LATEST)["end"])
    new = restarted(lab)
    if was_planned:
        assert again(new, START, end) == {ORDERS: 7, RETURNS: 5}
        said = new.batch(end, LATEST, number=8)
        assert offsets.parse(said["end"]) == LATEST
        assert "start" not in said
    else:
        said = new.batch(START, LATEST)
        assert offsets.parse(said["end"]) == end
        assert offsets.parse(said["start"]) == {ORDERS: 7, RETURNS: 5}


def test_a_skip_of_an_earlier_batch_with_the_same_number_does_not_count(lab):
    """The checkpoint was with Spark's own source meanwhile, or cut by hand."""
    lab.controller.skip("orders:0", to=7, reason="poison")
    lab.batch(START, LATEST)
    new = restarted(lab)
    assert again(new, {**START, ORDERS: 6}, LATEST) == {**START, ORDERS: 6}
    new = restarted(lab)
    assert "start" not in new.batch({**START, ORDERS: 6}, LATEST)


@pytest.mark.contract("S8")
@pytest.mark.parametrize(("to", "first"), [(7, 7), (9, 9), (11, 9)])
def test_a_record_that_fails_a_planned_batch_is_skipped_when_it_runs_again(
    lab, to, first
):
    """A batch in Spark's log keeps its end; what is left is skipped by the next one."""
    lab.controller.skip("orders:0", to=to, reason="poison")
    assert again(lab, START, LATEST) == {ORDERS: first, RETURNS: 5}
    said = lab.batch(LATEST, {ORDERS: 12, RETURNS: 8}, number=8)
    assert offsets.parse(said["end"])[ORDERS] == (to if to > 9 else 12)
    new = restarted(lab)
    assert again(new, START, LATEST) == {ORDERS: first, RETURNS: 5}


@pytest.mark.contract("S8")
def test_a_batch_that_runs_again_and_does_not_read_the_partition_skips_nothing(lab):
    """The partition was held in that batch; the next plan skips."""
    lab.controller.skip("orders:0", to=8, reason="poison")
    end = {ORDERS: 5, RETURNS: 8}
    assert again(lab, START, end) == START
    assert lab.named("spark_offsets_skipped") == []
    said = lab.batch(end, LATEST, number=8)
    assert "orders:0: offsets 5 to 7 are skipped" in said["metric.skipped"]


@pytest.mark.contract("S8")
def test_a_skip_that_cannot_be_is_refused_after_the_batch_that_runs_again(lab):
    lab.controller.skip("orders:0", to=4, reason="poison")
    assert again(lab, START, LATEST) == START
    why = "orders:0 cannot go on at 4: 9 is read next, and records would come twice"
    assert lab.batch(LATEST, LATEST, number=8)["metric.skipRefused"] == why


def test_a_topic_that_was_made_again_is_read_from_0_after_the_batch_that_runs_again(
    lab,
):
    lab.controller.pause("orders")
    lab.controller.skip("orders:0", to=0, reason="made again")
    end = {ORDERS: 5, RETURNS: 8}
    again(lab, START, end)
    said = lab.batch(end, {ORDERS: 3, RETURNS: 8}, number=8)
    assert offsets.parse(said["end"])[ORDERS] == 0


def test_a_skip_of_a_checkpoint_that_the_partition_does_not_reach_is_refused(lab):
    """The topic was cut between two runs; Spark has not planned that batch."""
    lab.controller.pause("orders")
    lab.controller.skip("orders:0", to=8, reason="poison")
    lab.batch(START, LATEST)
    new = restarted(lab)
    said = new.batch(START, {ORDERS: 6, RETURNS: 8})
    assert offsets.parse(said["end"])[ORDERS] == 6
    why = "orders:0 cannot go on at 8: it ends at 6, and can be skipped up to there"
    assert said["metric.skipRefused"] == why


def test_a_skip_that_the_checkpoint_does_not_take_holds_everything_and_is_kept(lab):
    def refuse(_batch, _text):
        raise OSError

    store, lab.files.store = lab.files.store, refuse
    lab.controller.skip("orders:0", to=7, reason="poison")
    with pytest.raises(Undecided, match="OSError"):
        lab.batch(START, LATEST)
    lab.files.store = store
    assert offsets.parse(lab.batch(START, LATEST)["end"])[ORDERS] == 7
    lab.controller.skip("orders:0", to=11, reason="poison")
    lab.files.store = refuse
    with pytest.raises(Undecided, match="OSError"):
        again(lab, START, LATEST)
    lab.files.store = store
    assert again(lab, START, LATEST)[ORDERS] == 9
    said = lab.batch(LATEST, {ORDERS: 12, RETURNS: 8}, number=8)
    assert offsets.parse(said["end"])[ORDERS] == 11


def test_a_file_that_was_cut_off_has_no_skips(lab):
    """Spark has not planned that batch."""
    lab.files.texts[7] = '[{"topic": "ord'
    assert offsets.parse(lab.batch(START, LATEST)["end"]) == LATEST


@pytest.mark.parametrize(
    ("target", "wrong", "kind"),
    [
        ("orders", {}, TargetTypeError),
        ("orders:0-2", {}, TargetTypeError),
        ("re:ord.*", {}, TargetTypeError),
        (7, {}, TargetTypeError),
        ("orders:x", {}, ScopeSyntaxError),
        ("orders:0", {"to": -1}, HoldSettingError),
        ("orders:0", {"to": True}, HoldSettingError),
        ("orders:0", {"to": "7"}, HoldSettingError),
        ("orders:0", {"reason": ""}, HoldSettingError),
        ("orders:0", {"reason": None}, HoldSettingError),
        ("orders:0", {"owner": ""}, HoldSettingError),
        ("orders:0", {"query": ""}, HoldSettingError),
        ("orders:0", {"query": 7}, HoldSettingError),
    ],
    ids=short,
)
def test_a_wrong_skip_is_refused_at_once(lab, target, wrong, kind):
    with pytest.raises(kind):
        lab.controller.skip(target, **{"to": 7, "reason": "poison", **wrong})
    assert "metric.skipped" not in lab.batch(START, LATEST)


def of_query(lab, name, latest=LATEST, number=7):
    """Return what a plan of a query answers; its checkpoint has no skips."""
    lab.files = Files()
    lab.ask("open", stream=name, options="")
    text = offsets.render(latest)
    facts = {"start": offsets.render(START), "end": text, "latest": text}
    about = f"{name}\nid = id of {name}\nrunId = 2\nbatch = {number}"
    return lab.ask("plan", stream=name, batch=about, **facts)


@pytest.mark.contract("S8")
@pytest.mark.parametrize("stops", [False, True], ids=["both run", "one was stopped"])
def test_of_two_queries_that_read_a_partition_only_the_one_that_is_named_skips(
    lab, stops
):
    """A query whose batch failed has stopped, and is started again after the skip."""
    of_query(lab, "archive")
    of_query(lab, "billing")
    if stops:
        lab.ask("close", stream="billing")
    both = r"2 queries .* read orders:0, or did \(archive, billing\).* query="
    with pytest.raises(SparkSetupError, match=both):
        lab.controller.skip("orders:0", to=7, reason="poison")
    lab.controller.skip("orders:0", to=7, reason="poison", query="billing")
    assert "metric.skipped" not in of_query(lab, "archive", number=8)
    assert "metric.skipped" in of_query(lab, "billing", number=8)


@pytest.mark.contract("S8")
def test_a_skip_is_for_the_one_query_that_has_read_the_partition(lab):
    """Another one that begins to read it later does not skip."""
    of_query(lab, "billing")
    lab.ask("close", stream="billing")
    lab.controller.skip("orders:0", to=7, reason="poison")
    assert "metric.skipped" not in of_query(lab, "archive")
    assert "metric.skipped" in of_query(lab, "billing")


@pytest.mark.parametrize("query", ["archive", "id of archive", None], ids=short)
def test_a_query_that_is_to_be_started_skips_by_its_name_or_id(lab, query):
    lab.controller.skip("orders:0", to=7, reason="poison", query=query)
    assert "metric.skipped" in of_query(lab, "archive")
    assert "metric.skipped" not in of_query(lab, "billing")


# ---------------------------------------------------------------- what is held and gone


@pytest.mark.contract("S8")
@pytest.mark.parametrize(
    ("first", "line"),
    [
        (6, "orders:0: the 1 record from offset 5 on is deleted already"),
        (8, "orders:0: the 3 records from offset 5 on are deleted already"),
    ],
    ids=["one", "several"],
)
def test_held_records_that_are_deleted_are_reported_before_the_hold_ends(
    lab, first, line
):
    """Once, and in each progress; the query lives on."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.cluster.first[ORDERS] = first
    assert "metric.heldLost" not in lab.batch(START, LATEST)
    lab.clock.now += 10
    for _ in range(2):
        assert lab.batch(START, LATEST)["metric.heldLost"] == line
    (event,) = lab.named("spark_held_data_lost")
    assert event.losses == (line,)
    lab.controller.skip("orders:0", to=8, reason="retention")
    assert "metric.heldLost" not in lab.batch(START, LATEST)


def test_a_topic_that_was_made_again_under_a_hold_is_reported_when_that_ends(lab):
    """As many records as before: offsets do not tell, its id does."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.cluster.ids["orders"] = "b"
    lab.controller.resume("orders")
    said = lab.batch(START, LATEST)
    assert said["metric.heldLost"] == (
        "orders:0: its topic was deleted and made again while it was held"
    )


@pytest.mark.contract("S8")
def test_a_topic_that_was_made_again_is_reported_until_its_hold_has_ended(lab):
    """However often it was looked at since: in each progress, and in one event."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.cluster.ids["orders"] = "b"
    line = "orders:0: its topic was deleted and made again while it was held"
    for _ in range(3):
        lab.clock.now += 10
        assert lab.batch(START, LATEST)["metric.heldLost"] == line
    lab.controller.resume("orders")
    assert lab.batch(START, LATEST)["metric.heldLost"] == line
    assert "metric.heldLost" not in lab.batch(LATEST, LATEST, number=8)
    (event,) = lab.named("spark_held_data_lost")
    assert event.losses == (line,)
    lab.controller.pause("orders")
    lab.clock.now += 10
    assert "metric.heldLost" not in lab.batch(LATEST, LATEST, number=8)


def test_a_skip_settles_that_a_topic_was_made_again(lab):
    """What is held is the new topic's from then on; it may be made again once more."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    found = {ORDERS: 3, RETURNS: 8}
    lab.cluster.ids["orders"] = "b"
    lab.clock.now += 10
    lab.controller.skip("orders:0", to=0, reason="made again")
    assert "made again while it was held" in lab.batch(START, found)["metric.heldLost"]
    start = {ORDERS: 0, RETURNS: 8}
    for is_lost in (False, True, True):
        assert ("metric.heldLost" in lab.batch(start, found, number=8)) == is_lost
        lab.cluster.ids["orders"] = "c"
        lab.clock.now += 10


def test_a_cluster_that_does_not_answer_is_asked_again_later(lab):
    lab.cluster.firsts = lab.cluster.fail
    lab.controller.pause("orders")
    for _ in range(3):
        assert offsets.parse(lab.batch(START, LATEST)["end"])[ORDERS] == 5
    assert lab.cluster.asked == 1


def test_a_topic_that_is_made_again_between_two_holds_is_not_reported(lab):
    """The cluster does not answer when the first hold ends."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.controller.resume("orders")
    firsts, lab.cluster.firsts = lab.cluster.firsts, lab.cluster.fail
    lab.batch(START, LATEST)
    lab.cluster.firsts = firsts
    lab.cluster.ids["orders"] = "b"
    lab.controller.pause("orders")
    assert "metric.heldLost" not in lab.batch(START, LATEST)


def test_where_nothing_is_held_nobody_is_asked(lab):
    lab.batch(START, LATEST)
    assert lab.cluster.asked == 0


# ---------------------------------------------------------------- commits


class Group:
    """A cluster to which offsets are committed."""

    errors = (OSError,)

    def __init__(self):
        self.committed = {}
        self.members = 0
        self.fails = False
        self.is_closed = False
        self.asked = threading.Semaphore(0)
        self.went = threading.Semaphore(0)  # a commit was made, or has failed

    def group(self, _group, _until):
        self.asked.release()
        if self.fails:
            self.went.release()
            message = "away"
            raise OSError(message)
        return self.members, {tp: note for tp, (_, note) in self.committed.items()}

    def commit(self, _group, ends, note, _until):
        self.committed.update({tp: (end, note) for tp, end in ends.items()})
        self.went.release()

    def ends(self):
        """Return the committed offsets."""
        return {tp: end for tp, (end, _) in self.committed.items()}

    def reason(self, error):
        return str(error)

    def close(self):
        self.is_closed = True


class Committing:
    """A committer that has done with a batch before the next one ends."""

    def __init__(self, group):
        self.group = group
        self.failed = []
        self.committer = Committer(group, "g", self.failed.append)

    def batch(self, end):
        """Commit where a batch ends, and return the offsets of the group then."""
        for _ in range(2):  # when the second one is begun, the first one is done
            self.committer.commit({ORDERS: end}, "nightly")
            assert self.group.asked.acquire(timeout=30)
        return self.group.ends().get(ORDERS)


@pytest.fixture
def made():
    """Return a function that makes committers; all are closed at the end."""
    every = []

    def make(group):
        every.append(Committing(group))
        return every[-1]

    yield make
    for one in every:
        one.committer.close()


@pytest.mark.contract("S7")
def test_a_commit_that_fails_is_reported_once_and_tried_again_with_the_next_batch(made):
    group = Group()
    stream = made(group)
    for end, fails in enumerate((True, True, False, False)):
        group.fails = fails
        assert stream.batch(end) == (None if fails else end)
    stream.committer.close()
    assert stream.failed == ["away", ""]
    assert group.is_closed


@pytest.mark.contract("S7")
def test_the_last_batch_is_committed_before_a_stream_closes():
    group = Group()
    committer = Committer(group, "g", print)
    committer.commit({ORDERS: 7}, "")
    committer.close()
    assert group.ends() == {ORDERS: 7}


@pytest.mark.contract("S7")
def test_offsets_of_a_fleet_stay_if_the_group_was_not_asked_at_the_start(made):
    """The cluster did not answer then, and the fleet is away."""
    group = Group()
    group.committed[ORDERS] = 100, ""
    stream = made(group)
    assert stream.batch(900) == 100
    (why,) = stream.failed
    assert "group g has offsets that others committed" in why


@pytest.mark.contract("S7")
@pytest.mark.parametrize("meets", [True, False], ids=["met", "between two batches"])
def test_offsets_of_a_fleet_that_came_later_stay_when_it_is_away(made, meets):
    group = Group()
    stream = made(group)
    assert stream.batch(10) == 10
    group.committed[ORDERS] = 100, ""
    if meets:
        group.members = 2
        assert stream.batch(200) == 100
        group.members = 0
    assert stream.batch(900) == 100
    assert len(stream.failed) == 1


@pytest.mark.contract("S7")
def test_of_two_streams_with_one_group_the_newer_one_commits(made):
    """As after a restart; the older one says why it commits no more."""
    group = Group()
    old = made(group)
    assert old.batch(10) == 10
    new = made(group)
    assert new.batch(20) == 20
    assert old.batch(11) == 20
    assert new.batch(21) == 21
    assert old.batch(12) == 21
    (why,) = old.failed
    assert "group g: another stream commits to it" in why
    assert new.failed == []


@pytest.mark.contract("S7")
def test_a_last_batch_whose_commit_failed_is_committed_before_a_stream_closes():
    group = Group()
    group.fails = True
    committer = Committer(group, "g", print)
    committer.commit({ORDERS: 7}, "")
    assert group.went.acquire(timeout=30)
    group.fails = False
    committer.close()
    assert group.ends() == {ORDERS: 7}


@pytest.mark.contract("S7")
@pytest.mark.parametrize("error", [SystemExit, ValueError])
def test_a_hook_that_raises_ends_no_commits(error, caplog):
    """Its exit is logged, and what failed counts as reported."""
    group, failed = Group(), []

    def raising(why):
        failed.append(why)
        raise error

    committer = Committer(group, "g", raising)
    for fails in (True, True, False):
        group.fails = fails
        committer.commit({ORDERS: 7}, "")
        assert group.went.acquire(timeout=30)
    committer.close()
    assert failed == ["away", ""]
    assert group.ends() == {ORDERS: 7}
    assert group.is_closed
    assert caplog.text.count("a hook wanted to end the thread that commits") == 2


@pytest.mark.contract("S7")
def test_offsets_are_those_of_a_batch_that_has_run(lab):
    ended = []
    (stream,) = lab.controller.bridge.streams()
    stream.on_end = ended.append
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    assert ended == []
    lab.ask("ended")
    assert ended == [{ORDERS: 5, RETURNS: 8}]


@pytest.mark.contract("S7")
@pytest.mark.parametrize(
    ("members", "notes", "said"),
    [
        (1, {}, "has 1 member;"),
        (2, {}, "has 2 members;"),
        (0, {ORDERS: ""}, "has offsets that others committed"),
    ],
    ids=["member", "members", "a fleet that is away"],
)
def test_a_group_of_others_is_refused(members, notes, said):
    with pytest.raises(SparkSettingError, match=f"commitGroup: group g {said}"):
        require_own("g", members, notes)
    require_own("g", 0, {ORDERS: f"{MARK} nightly"})
