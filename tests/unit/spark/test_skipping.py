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
from tests.harness.spark.lab import LATEST, START, DeciderLab, Undecided

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


def test_a_skip_that_the_checkpoint_does_not_take_holds_everything_and_is_kept(lab):
    def refuse(_batch, _text):
        raise OSError

    store, lab.files.store = lab.files.store, refuse
    lab.controller.skip("orders:0", to=7, reason="poison")
    with pytest.raises(Undecided, match="OSError"):
        lab.batch(START, LATEST)
    lab.files.store = store
    assert offsets.parse(lab.batch(START, LATEST)["end"])[ORDERS] == 7


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
    ],
    ids=short,
)
def test_a_wrong_skip_is_refused_at_once(lab, target, wrong, kind):
    with pytest.raises(kind):
        lab.controller.skip(target, **{"to": 7, "reason": "poison", **wrong})
    assert lab.wanted.take([ORDERS]) == ()


def test_a_partition_that_two_streams_read_is_not_skipped(lab):
    lab.ask("open", stream="another", options="")
    for stream in ("a stream", "another"):
        facts = {"start": offsets.render(START), "latest": offsets.render(LATEST)}
        lab.ask("plan", stream=stream, end=facts["latest"], **facts)
    with pytest.raises(
        SparkSetupError, match="2 streams of this session read orders:0"
    ):
        lab.controller.skip("orders:0", to=7, reason="poison")
    lab.ask("close", stream="another")
    lab.controller.skip("orders:0", to=7, reason="poison")


# ---------------------------------------------------------------- what is held and gone


@pytest.mark.contract("S8")
def test_held_records_that_are_deleted_are_reported_before_the_hold_ends(lab):
    """Once, and in each progress; the query lives on."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.cluster.first[ORDERS] = 8
    assert "metric.heldLost" not in lab.batch(START, LATEST)
    lab.clock.now += 10
    line = "orders:0: the 3 records from offset 5 on are deleted already"
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


def test_a_cluster_that_does_not_answer_is_asked_again_later(lab):
    def fail(_partitions, _until):
        lab.cluster.asked += 1
        raise OSError

    lab.cluster.firsts = fail
    lab.controller.pause("orders")
    for _ in range(3):
        assert offsets.parse(lab.batch(START, LATEST)["end"])[ORDERS] == 5
    assert lab.cluster.asked == 1


def test_where_nothing_is_held_nobody_is_asked(lab):
    lab.batch(START, LATEST)
    assert lab.cluster.asked == 0


# ---------------------------------------------------------------- commits


class Group:
    """A cluster to which offsets are committed."""

    errors = (OSError,)

    def __init__(self):
        self.committed = []
        self.fails = False
        self.is_closed = False
        self.went = threading.Semaphore(0)

    def commit(self, _group, ends, note, _until):
        if self.fails:
            self.went.release()
            message = "away"
            raise OSError(message)
        self.committed.append((ends, note))
        self.went.release()

    def reason(self, error):
        return str(error)

    def close(self):
        self.is_closed = True


@pytest.mark.contract("S7")
def test_a_commit_that_fails_is_reported_once_and_tried_again_with_the_next_batch():
    group, failed = Group(), []
    committer = Committer(group, "g", failed.append)
    for fails in (True, True, False, False):
        group.fails = fails
        committer.commit({ORDERS: 7}, "nightly")
        assert group.went.acquire(timeout=30)
    committer.close()
    assert failed == ["away", ""]
    assert group.committed == [({ORDERS: 7}, f"{MARK} nightly")] * 2
    assert group.is_closed


@pytest.mark.contract("S7")
def test_the_last_batch_is_committed_before_a_stream_closes():
    group = Group()
    committer = Committer(group, "g", print)
    committer.commit({ORDERS: 7}, "")
    committer.close()
    assert group.committed == [({ORDERS: 7}, MARK)]


@pytest.mark.contract("S7")
def test_a_last_batch_whose_commit_failed_is_committed_before_a_stream_closes():
    group = Group()
    group.fails = True
    committer = Committer(group, "g", print)
    committer.commit({ORDERS: 7}, "")
    assert group.went.acquire(timeout=30)
    group.fails = False
    committer.close()
    assert group.committed == [({ORDERS: 7}, MARK)]


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
    assert group.committed == [({ORDERS: 7}, MARK)]
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
    [(2, {}, "has 2 members"), (0, {ORDERS: ""}, "has offsets that others committed")],
    ids=["members", "a fleet that is away"],
)
def test_a_group_of_others_is_refused(members, notes, said):
    with pytest.raises(SparkSettingError, match=f"commitGroup: group g {said}"):
        require_own("g", members, notes)
    require_own("g", 0, {ORDERS: f"{MARK} nightly"})
