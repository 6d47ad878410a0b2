"""Tests skips, records lost under a hold, and commits, without Spark and Kafka."""

import gc
import threading
from types import SimpleNamespace

import pytest

from safeconsumer.errors import (
    HoldSettingError,
    ScopeSyntaxError,
    SparkSettingError,
    SparkSetupError,
    TargetTypeError,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import offsets, options
from safeconsumer.spark.committing import MARK, Committer, require_own
from safeconsumer.spark.events import ProgressNotCommitted
from safeconsumer.spark.opening import Opening
from tests.harness.listing import short
from tests.harness.spark.lab import (
    LATEST,
    START,
    DeciderLab,
    Files,
    Topics,
    Undecided,
)
from tests.harness.waiting import wait_for

ORDERS, RETURNS = ("orders", 0), ("returns", 0)


@pytest.fixture
def lab():
    return DeciderLab()


def again(lab, start, end, number=7):
    """Return the start offsets of a batch that runs again after a restart."""
    facts = {"start": offsets.render(start), "end": offsets.render(end)}
    answer = lab.ask("again", batch=f"q\nid = 1\nrunId = 2\nbatch = {number}", **facts)
    assert ("start" in answer) == ("metric.skipped" in answer)
    return offsets.parse(answer.get("start", facts["start"]))


def restarted(lab):
    """Return the lab of a restarted process with the same checkpoint."""
    made = DeciderLab()
    made.files.texts.update(lab.files.texts)
    return made


@pytest.mark.contract("S8")
@pytest.mark.parametrize("limit", [None, LATEST], ids=["no limit", "limit"])
@pytest.mark.parametrize("held", [False, True], ids=["flowing", "held"])
def test_batch_with_a_skip_starts_after_the_skipped_offsets_and_ends_there(
    lab, limit, held
):
    """The progress report and an event name the skipped offsets, the owner and the reason."""
    if held:
        lab.controller.pause("orders", owner="ops")
    lab.controller.skip("orders:0", to=7, reason="poison", owner="alice")
    answer = lab.batch(START, LATEST, end=limit)
    assert offsets.parse(answer["end"]) == {ORDERS: 7, RETURNS: 8}
    assert offsets.parse(answer["start"]) == {ORDERS: 7, RETURNS: 5}
    line = "orders:0: offsets 5 to 6 are skipped, by alice: poison"
    assert answer["metric.skipped"] == line
    (event,) = lab.named("spark_offsets_skipped")
    assert event.skipped == (line,)
    answer = lab.batch(offsets.parse(answer["end"]), LATEST, number=8)
    assert offsets.parse(answer["end"])[ORDERS] == (7 if held else 9)
    assert "start" not in answer
    assert "metric.skipped" not in answer


def test_partition_with_a_pending_skip_does_not_share_the_rate_limit(lab):
    lab.controller.skip("orders:0", to=7, reason="poison")
    answer = lab.plan(batch="batch = 1")
    assert offsets.parse(answer["from"]) == {ORDERS: 9, RETURNS: 5}


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
def test_impossible_skip_is_refused_and_dropped(to, latest, why):
    """The batch runs without the skip; the progress report and an event give the reason."""
    lab = DeciderLab(fails_on_loss=False)
    lab.controller.skip("orders:0", to=to, reason="poison")
    found = {RETURNS: 8} if latest is None else {ORDERS: latest, RETURNS: 8}
    answer = lab.batch(START, found)
    assert "start" not in answer
    assert answer["metric.skipRefused"] == f"orders:0 cannot continue at {to}: {why}"
    assert len(lab.named("spark_skip_refused")) == 1
    assert "metric.skipRefused" not in lab.batch(START, found)


@pytest.mark.contract("S8")
def test_recreated_topic_can_be_read_from_any_of_its_offsets(lab):
    """The query does not fail, although the held topic ends before the next offset."""
    lab.controller.pause("orders")
    lab.controller.skip("orders:0", to=0, reason="made again")
    answer = lab.batch(START, {ORDERS: 3, RETURNS: 8})
    assert offsets.parse(answer["end"])[ORDERS] == 0
    assert (
        "reading begins at 0 of a topic that was recreated" in answer["metric.skipped"]
    )
    assert lab.controller.lag() == {ORDERS: 3}


@pytest.mark.contract("S8")
@pytest.mark.parametrize("was_planned", [True, False], ids=["in the log", "not yet"])
def test_skip_of_an_interrupted_batch_is_repeated(lab, was_planned):
    """The checkpoint contains the skip, so no user has to request the skip again."""
    lab.controller.skip("orders:0", to=7, reason="poison")
    end = offsets.parse(lab.batch(START, LATEST)["end"])
    new = restarted(lab)
    if was_planned:
        assert again(new, START, end) == {ORDERS: 7, RETURNS: 5}
        answer = new.batch(end, LATEST, number=8)
        assert offsets.parse(answer["end"]) == LATEST
        assert "start" not in answer
    else:
        answer = new.batch(START, LATEST)
        assert offsets.parse(answer["end"]) == end
        assert offsets.parse(answer["start"]) == {ORDERS: 7, RETURNS: 5}


def test_skip_stored_for_an_earlier_batch_with_the_same_number_is_ignored(lab):
    """Meanwhile Spark's own source may have used the checkpoint, or a user truncated it."""
    lab.controller.skip("orders:0", to=7, reason="poison")
    lab.batch(START, LATEST)
    new = restarted(lab)
    assert again(new, {**START, ORDERS: 6}, LATEST) == {**START, ORDERS: 6}
    new = restarted(lab)
    assert "start" not in new.batch({**START, ORDERS: 6}, LATEST)


@pytest.mark.contract("S8")
@pytest.mark.parametrize(("to", "first"), [(7, 7), (9, 9), (11, 9)])
def test_record_that_fails_a_planned_batch_is_skipped_when_the_batch_runs_again(
    lab, to, first
):
    """A batch in Spark's log keeps its end; the next batch skips the remaining offsets."""
    lab.controller.skip("orders:0", to=to, reason="poison")
    assert again(lab, START, LATEST) == {ORDERS: first, RETURNS: 5}
    answer = lab.batch(LATEST, {ORDERS: 12, RETURNS: 8}, number=8)
    assert offsets.parse(answer["end"])[ORDERS] == (to if to > 9 else 12)
    new = restarted(lab)
    assert again(new, START, LATEST) == {ORDERS: first, RETURNS: 5}


@pytest.mark.contract("S8")
def test_repeated_batch_without_the_partition_does_not_carry_out_its_skip(lab):
    """The partition was held in that batch, so the next plan carries out the skip."""
    lab.controller.skip("orders:0", to=8, reason="poison")
    end = {ORDERS: 5, RETURNS: 8}
    assert again(lab, START, end) == START
    assert lab.named("spark_offsets_skipped") == []
    answer = lab.batch(end, LATEST, number=8)
    assert "orders:0: offsets 5 to 7 are skipped" in answer["metric.skipped"]


@pytest.mark.contract("S8")
def test_impossible_skip_is_refused_after_the_repeated_batch(lab):
    lab.controller.skip("orders:0", to=4, reason="poison")
    assert again(lab, START, LATEST) == START
    why = "orders:0 cannot continue at 4: 9 is read next, and records would come twice"
    assert lab.batch(LATEST, LATEST, number=8)["metric.skipRefused"] == why


def test_recreated_topic_is_read_from_0_after_the_repeated_batch(lab):
    lab.controller.pause("orders")
    lab.controller.skip("orders:0", to=0, reason="made again")
    end = {ORDERS: 5, RETURNS: 8}
    again(lab, START, end)
    answer = lab.batch(end, {ORDERS: 3, RETURNS: 8}, number=8)
    assert offsets.parse(answer["end"])[ORDERS] == 0


def test_skip_beyond_the_end_of_a_truncated_topic_is_refused(lab):
    """The skip is stored, but the topic was truncated before Spark planned its batch."""
    lab.controller.pause("orders")
    lab.controller.skip("orders:0", to=8, reason="poison")
    lab.batch(START, LATEST)
    new = restarted(lab)
    answer = new.batch(START, {ORDERS: 6, RETURNS: 8})
    assert offsets.parse(answer["end"])[ORDERS] == 6
    why = "orders:0 cannot continue at 8: it ends at 6, and can be skipped up to there"
    assert answer["metric.skipRefused"] == why


def test_skip_that_cannot_be_stored_is_kept_and_the_batch_gets_no_decision(lab):
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
    answer = lab.batch(LATEST, {ORDERS: 12, RETURNS: 8}, number=8)
    assert offsets.parse(answer["end"])[ORDERS] == 11


def test_truncated_file_of_skips_is_ignored(lab):
    """A file is complete before Spark plans its batch, so the batch had not been planned."""
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
def test_wrong_skip_is_refused_immediately(lab, target, wrong, kind):
    with pytest.raises(kind):
        lab.controller.skip(target, **{"to": 7, "reason": "poison", **wrong})
    assert "metric.skipped" not in lab.batch(START, LATEST)


def of_query(lab, name, latest=LATEST, number=7):
    """Plan a batch of a query whose checkpoint contains no skips, and return the answer."""
    lab.files = Files()
    lab.ask("open", stream=name, options="")
    text = offsets.render(latest)
    facts = {"start": offsets.render(START), "end": text, "latest": text}
    about = f"{name}\nid = id of {name}\nrunId = 2\nbatch = {number}"
    return lab.ask("plan", stream=name, batch=about, **facts)


@pytest.mark.contract("S8")
@pytest.mark.parametrize("stops", [False, True], ids=["both run", "one was stopped"])
def test_skip_for_a_partition_that_two_queries_read_must_name_one_query(lab, stops):
    """A query stops if its batch fails, and is restarted after the skip."""
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
def test_skip_applies_only_to_the_query_that_has_read_the_partition(lab):
    """Another query that reads the partition later does not skip."""
    of_query(lab, "billing")
    lab.ask("close", stream="billing")
    lab.controller.skip("orders:0", to=7, reason="poison")
    assert "metric.skipped" not in of_query(lab, "archive")
    assert "metric.skipped" in of_query(lab, "billing")


@pytest.mark.parametrize("query", ["archive", "id of archive", None], ids=short)
def test_skip_can_name_a_query_that_starts_later_by_its_name_or_id(lab, query):
    lab.controller.skip("orders:0", to=7, reason="poison", query=query)
    assert "metric.skipped" in of_query(lab, "archive")
    assert "metric.skipped" not in of_query(lab, "billing")


@pytest.mark.contract("S8")
@pytest.mark.parametrize(
    ("target", "query", "refusal"),
    [
        ("oders:0", None, "no query of this session reads oders:0: .*"),
        ("orders:9", None, "no query of this session reads orders:9: .*"),
        ("oders:0", "archive", "query archive does not read oders:0: .*"),
        ("oders:0", "id of archive", "query id of archive does not read oders:0: .*"),
    ],
)
def test_skip_of_a_partition_that_no_query_reads_is_refused(
    lab, target, query, refusal
):
    of_query(lab, "archive")
    reads = refusal + "archive reads orders:0 returns:0; .*query="
    with pytest.raises(SparkSetupError, match=reads):
        lab.controller.skip(target, to=7, reason="poison", query=query)
    assert "metric.skipWaiting" not in of_query(lab, "archive", number=8)


@pytest.mark.contract("S8")
@pytest.mark.parametrize(
    ("query", "waits_for"),
    [("billing", "query billing"), (None, "the first query that reads it")],
    ids=short,
)
def test_pending_skip_is_shown_until_a_query_carries_it_out(
    lab, caplog, query, waits_for
):
    """Before a query has planned a batch, the query and its topics are unknown."""
    if query:
        of_query(lab, "archive")
    topic = "orders" if query else "oders"
    lab.controller.skip(f"{topic}:0", to=7, reason="poison", query=query)
    line = f"{topic}:0 to 7, for {waits_for}"
    assert f"a skip waits: {line}" in caplog.text
    assert of_query(lab, "archive", number=8)["metric.skipWaiting"] == line
    taken = of_query(lab, "billing", latest={**LATEST, (topic, 0): 9})
    assert f"{topic}:0: offsets " in taken["metric.skipped"]
    assert "metric.skipWaiting" not in of_query(lab, "archive", number=9)


# ---------------------------------------------------------------- records lost under a hold


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
    """One event and every progress report name the deleted records; the query continues."""
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


def test_topic_recreated_under_a_hold_is_reported_when_the_hold_ends(lab):
    """The new topic has the same length as the old topic, but another id."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.cluster.ids["orders"] = "b"
    lab.controller.resume("orders")
    answer = lab.batch(START, LATEST)
    assert answer["metric.heldLost"] == (
        "orders:0: its topic was deleted and recreated while it was held"
    )


@pytest.mark.contract("S8")
def test_recreated_topic_is_reported_until_its_hold_has_ended(lab):
    """Each progress report and one event name the recreated topic."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.cluster.ids["orders"] = "b"
    line = "orders:0: its topic was deleted and recreated while it was held"
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


def test_skip_lets_a_stream_continue_in_a_topic_that_was_recreated_under_a_hold(lab):
    """After the skip, the hold belongs to the new topic, which may also be recreated."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    found = {ORDERS: 3, RETURNS: 8}
    lab.cluster.ids["orders"] = "b"
    lab.clock.now += 10
    lab.controller.skip("orders:0", to=0, reason="made again")
    assert "recreated while it was held" in lab.batch(START, found)["metric.heldLost"]
    start = {ORDERS: 0, RETURNS: 8}
    for is_lost in (False, True, True):
        assert ("metric.heldLost" in lab.batch(start, found, number=8)) == is_lost
        lab.cluster.ids["orders"] = "c"
        lab.clock.now += 10


def test_unresponsive_cluster_is_not_queried_again_immediately(lab):
    lab.cluster.firsts = lab.cluster.fail
    lab.controller.pause("orders")
    for _ in range(3):
        assert offsets.parse(lab.batch(START, LATEST)["end"])[ORDERS] == 5
    assert lab.cluster.asked == 1


def test_held_topic_whose_id_is_missing_does_not_fail_a_plan(lab):
    """The id may be missing because of a deletion or an old broker; it is compared later."""
    lab.controller.pause("orders:0", "returns")
    assert "metric.heldLost" not in lab.batch(START, LATEST)
    known, lab.cluster.topic_ids = lab.cluster.topic_ids, lambda _names, _until: {}
    lab.clock.now += 60
    answer = lab.batch(START, LATEST)
    assert answer["verdict"] == "go"
    assert "metric.heldLost" not in answer
    lab.cluster.topic_ids, lab.cluster.ids["orders"] = known, "b"
    lab.clock.now += 60
    assert "orders:0: its topic was" in lab.batch(START, LATEST)["metric.heldLost"]


def test_topic_recreated_between_two_holds_is_not_reported(lab):
    """In this test, the cluster does not answer when the first hold ends."""
    lab.controller.pause("orders")
    lab.batch(START, LATEST)
    lab.controller.resume("orders")
    firsts, lab.cluster.firsts = lab.cluster.firsts, lab.cluster.fail
    lab.batch(START, LATEST)
    lab.cluster.firsts = firsts
    lab.cluster.ids["orders"] = "b"
    lab.controller.pause("orders")
    assert "metric.heldLost" not in lab.batch(START, LATEST)


def test_cluster_is_not_queried_without_holds(lab):
    lab.batch(START, LATEST)
    assert lab.cluster.asked == 0


# ---------------------------------------------------------------- commits

CLUSTERS = {
    "kafka.bootstrap.servers": "data:9092",
    "holds.control.kafka.bootstrap.servers": "control:9092",
    "holds.control": "true",
    "holds.group": "fleet",
    "holds.statusTopic": "",
    "holds": "orders",
    "commitGroup": "g",
}


class Unreachable:
    """A fake holds topic to which clients can connect, but which cannot be read."""

    def __init__(self, connect):
        self._connect, self.positions = connect, {}

    def facts(self, _until):
        self._connect()
        raise OSError

    def close(self):
        pass


class Group:
    """A fake group; it records commits, and the clusters to which the clients connect."""

    name = "g"
    errors = (OSError,)

    def __init__(self):
        self.committed = {}
        self.members = 0
        self.fails = False
        self.asked = threading.Semaphore(0)
        self.went = threading.Semaphore(0)  # released after a commit or its failure
        self.closed = threading.Event()
        self.clusters = {}
        self.events = []

    def opened(self):
        """Return a stream that commits to the group."""
        hooks = (self.events.append,)
        opening = Opening(PauseLedger(hooks), self._clients, group=self._made)
        return opening.stream("s", options.parse(CLUSTERS))

    def _made(self, properties, _name):
        self.clusters["commits"] = properties["bootstrap.servers"]
        return self

    def _clients(self, properties):
        def connected(kind):
            self.clusters[kind] = properties["bootstrap.servers"]

        def cluster():
            connected("topics")
            return Topics()

        def holds_topic(_name):
            return Unreachable(lambda: connected("holds"))

        return SimpleNamespace(
            errors=(OSError,),
            cluster=cluster,
            holds_topic=holds_topic,
            reason=lambda *_: "no broker answered",
        )

    def state(self, _until):
        self.asked.release()
        if self.fails:
            self.went.release()
            message = "away"
            raise OSError(message)
        return self.members, {tp: note for tp, (_, note) in self.committed.items()}

    def commit(self, ends, note, _until):
        self.committed.update({tp: (end, note) for tp, end in ends.items()})
        self.went.release()

    def ends(self):
        """Return the committed offsets."""
        return {tp: end for tp, (end, _) in self.committed.items()}

    def reason(self, error):
        return str(error)

    def close(self):
        self.closed.set()


def taken(semaphore):
    """Wait until the semaphore can be acquired."""
    wait_for(lambda: semaphore.acquire(blocking=False), "a release")


class Committing:
    """A committer for which each commit has finished before the next one is requested."""

    def __init__(self, group):
        self.group = group
        self.failures = []
        self.committer = Committer(group, self.failures.append)

    def batch(self, end):
        """Commit the end of a batch, and return the group's committed offset."""
        for _ in range(2):  # the second commit starts only when the first is done
            self.committer.commit({ORDERS: end}, "nightly")
            taken(self.group.asked)
        return self.group.ends().get(ORDERS)


@pytest.fixture
def group():
    return Group()


@pytest.fixture
def committing(group):
    """Return a function that creates committers, which the fixture closes at the end."""
    every = []

    def made():
        every.append(Committing(group))
        return every[-1]

    yield made
    for one in every:
        one.committer.close()


@pytest.mark.contract("S7", "S8")
def test_commits_and_losses_are_looked_up_on_the_data_cluster(group):
    """Commits and log starts use the data cluster, although control topics are on another."""
    stream = group.opened()
    at = offsets.render({ORDERS: 7})
    stream.plan({"start": at, "end": at, "latest": at, "ends": "no"})
    stream.ended({})
    stream.close()
    where = dict.fromkeys(("commits", "topics"), "data:9092")
    assert group.clusters == {**where, "holds": "control:9092"}
    assert group.ends() == {ORDERS: 7}


@pytest.mark.contract("S8")
def test_source_without_access_to_files_reads_all_offsets(group):
    opening = Opening(PauseLedger(), group._clients)
    given = {"kafka.bootstrap.servers": "data:9092", "holds": "returns"}
    stream = opening.stream("s", options.parse(given), "sources/0")
    facts = {"start": offsets.render(START), "latest": offsets.render(LATEST)}
    batch = "nightly\nid = 1\nrunId = 2\nbatch = 7"
    planned = stream.plan(
        {**facts, "end": facts["latest"], "ends": "no", "batch": batch}
    )
    assert offsets.parse(planned["end"]) == {ORDERS: 9, RETURNS: 5}
    stream.close()


@pytest.mark.contract("S7")
def test_stream_dropped_without_close_stops_its_thread(group):
    """The thread commits the last batch before it stops."""
    stream = group.opened()
    stream.on_end({ORDERS: 7})
    del stream
    gc.collect()
    wait_for(group.closed.is_set, "the end of the thread")
    assert group.ends() == {ORDERS: 7}


@pytest.mark.contract("S7")
def test_failed_commit_is_reported_once_and_retried_with_the_next_batch(
    group, committing
):
    stream = committing()
    for end, fails in enumerate((True, True, False, False)):
        group.fails = fails
        assert stream.batch(end) == (None if fails else end)
    stream.committer.close()
    assert stream.failures == ["away", ""]
    assert group.closed.is_set()


@pytest.mark.contract("S7")
def test_one_event_reports_a_failed_commit_and_another_the_recovery(group):
    stream = group.opened()
    for fails in (True, False):
        group.fails = fails
        stream.on_end({ORDERS: 7})
        taken(group.went)
    stream.close()
    found = [one for one in group.events if isinstance(one, ProgressNotCommitted)]
    assert [(one.stream, one.group, one.reason) for one in found] == [
        ("s", "g", "away"),
        ("s", "g", ""),
    ]


@pytest.mark.contract("S7")
@pytest.mark.parametrize("fails", [False, True], ids=["new", "failed"])
def test_last_batch_is_committed_before_a_stream_closes(group, committing, fails):
    group.fails = fails
    committer = committing().committer
    committer.commit({ORDERS: 7}, "")
    if fails:
        taken(group.went)
        group.fails = False
    committer.close()
    assert group.ends() == {ORDERS: 7}


@pytest.mark.contract("S7")
def test_commits_of_stopped_members_are_not_overwritten_by_a_stream(group, committing):
    """At its start, the stream could not check the group, as the cluster did not answer."""
    group.committed[ORDERS] = 100, ""
    stream = committing()
    assert stream.batch(900) == 100
    (reason,) = stream.failures
    assert "group g has offsets that others committed" in reason


@pytest.mark.contract("S7")
@pytest.mark.parametrize(
    "meets", [True, False], ids=["at the same time", "between two batches"]
)
def test_commits_of_members_that_started_after_the_stream_are_not_overwritten(
    group, committing, meets
):
    stream = committing()
    assert stream.batch(10) == 10
    group.committed[ORDERS] = 100, ""
    if meets:
        group.members = 2
        assert stream.batch(200) == 100
        group.members = 0
    assert stream.batch(900) == 100
    assert len(stream.failures) == 1


@pytest.mark.contract("S7")
def test_only_the_newer_of_two_streams_with_the_same_group_commits(committing):
    """The newer one may be a restart; the older one reports why it no longer commits."""
    old = committing()
    assert old.batch(10) == 10
    new = committing()
    assert new.batch(20) == 20
    assert old.batch(11) == 20
    assert new.batch(21) == 21
    assert old.batch(12) == 21
    (reason,) = old.failures
    assert "group g: another stream commits to it" in reason
    assert new.failures == []


@pytest.mark.contract("S7")
@pytest.mark.parametrize("error", [SystemExit, ValueError])
def test_hook_that_raises_does_not_stop_the_commits(group, error, caplog):
    """The hook's SystemExit is logged, and the failure still counts as reported."""
    failures = []

    def raising(reason):
        failures.append(reason)
        raise error

    committer = Committer(group, raising)
    for fails in (True, True, False):
        group.fails = fails
        committer.commit({ORDERS: 7}, "")
        taken(group.went)
    committer.close()
    assert failures == ["away", ""]
    assert group.ends() == {ORDERS: 7}
    assert caplog.text.count("a hook wanted to end the thread that commits") == 2


@pytest.mark.contract("S7")
def test_offsets_are_committed_only_once_their_batch_is_complete(lab):
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
    ("members", "notes", "refusal"),
    [
        (1, {}, "has 1 member;"),
        (2, {}, "has 2 members;"),
        (0, {ORDERS: ""}, "has offsets that others committed"),
    ],
    ids=["member", "members", "a stopped fleet"],
)
def test_group_in_which_other_members_commit_is_refused(members, notes, refusal):
    with pytest.raises(SparkSettingError, match=f"commitGroup: group g {refusal}"):
        require_own("g", members, notes)
    require_own("g", 0, {ORDERS: f"{MARK} nightly"})
