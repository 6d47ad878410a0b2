"""Production-like fleets, judged by the journals of their members."""

import pytest
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.cli.control_topics import read_control
from safeconsumer.testing._batches import NewRecord
from tests.harness.audit.journals import entries_in, verdict_in
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.reading import Reader
from tests.sim.worker.working import (
    Handler,
    committed,
    filled,
    in_both,
    journaled,
)

pytestmark = pytest.mark.contract("S5")

# In production the audit reads the topic's settings, which show that the topic is not
# compacted.
PLAIN = frozenset({"t"})


CLEAN = [], {}


@pytest.mark.parametrize("resets", ["earliest", "latest"])
@pytest.mark.parametrize("when", ["within an ownership", "between two", "twice"])
def test_retention_is_judged_by_the_log_start_in_a_response(
    lab, tmp_path, resets, when
):
    """The broker's next response has the log start, so --against-topic is not needed."""
    (tp,) = lab.topic("t")
    for number in range(20):
        lab.append(tp, 5, first=5 * number)
    small = {"max_partition_fetch_bytes": 100, "auto_offset_reset": resets}
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, **small)
    reader.owns([tp])
    reader.consumer.seek_to_beginning(tp)
    reader.take(5)
    reader.consumer.commit()
    if when == "between two":
        reader.consumer.close()
    for turn, target in enumerate((60, 120) if when == "twice" else (60,), 1):
        known = len(entries_in(tmp_path, "log_start"))
        lab.cluster.delete_before("t", 0, target)
        if when == "between two":
            reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, **small)
        reader.until(lambda known=known: len(entries_in(tmp_path, "log_start")) > known)
        for number in range(20):
            lab.append(tp, 5, first=100 * turn + 5 * number)
        reader.take(5)
    reader.consumer.commit()
    reader.consumer.close()
    assert verdict_in(tmp_path, uncompacted=PLAIN) == CLEAN


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("resets", ["earliest", "latest"])
def test_retention_between_two_owners_is_not_a_fault_even_without_a_commit(
    lab, tmp_path, resets, commits
):
    """The first owner closes, perhaps without a commit, and its records are deleted."""
    (tp,) = lab.topic("t")
    settings = {"journal": tmp_path, "max_poll_records": 1, "auto_offset_reset": resets}
    first = Reader(lab, SafeConsumer, "t", **settings)
    first.owns([tp])
    first.consumer.seek_to_beginning(tp)
    for number in range(8):
        lab.append(tp, 1, first=number)
    first.take(5)
    if commits:
        first.consumer.commit()
    first.consumer.close(autocommit=False)
    lab.cluster.delete_before("t", 0, 8)
    second = Reader(lab, SafeConsumer, "t", **settings)
    second.until(lambda: 8 in [one["offset"] for one in entries_in(tmp_path, "begins")])
    lab.append(tp, 3, first=8)
    second.take(3)
    second.consumer.close(autocommit=False)
    assert verdict_in(tmp_path, uncompacted=PLAIN) == CLEAN


def test_records_skipped_by_an_owner_that_starts_at_the_end_are_lost(lab, tmp_path):
    """The log still has these records, and no member has delivered them (A2)."""
    (tp,) = lab.topic("t", records=5)
    first = Reader(lab, SafeConsumer, "t", journal=tmp_path)
    first.take(5)
    first.consumer.close(autocommit=False)
    lab.append(tp, 3, first=5)
    settings = {"journal": tmp_path, "auto_offset_reset": "latest"}
    second = Reader(lab, SafeConsumer, "t", **settings)
    second.until(lambda: 8 in [one["offset"] for one in entries_in(tmp_path, "begins")])
    lab.append(tp, 3, first=8)
    second.take(3)
    second.consumer.close(autocommit=False)
    lost = ("A2", "no member delivered offsets 5 to 7")
    assert verdict_in(tmp_path, uncompacted=PLAIN) == ([lost], {})


def test_jump_without_retention_is_not_judged(lab, tmp_path):
    """The client reports a position as out of range although the log still has it."""
    (tp,) = lab.topic("t", records=40)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, max_poll_records=5)
    reader.take(5)
    reader.consumer._subscription.seek(tp, 30)  # the program did not seek
    reader.take(10)
    reader.consumer.close()
    # One entry at the start of the ownership without a commit, and one after the jump.
    assert [one["first"] for one in entries_in(tmp_path, "log_start")] == [0, 0]
    found, unjudged = verdict_in(tmp_path, uncompacted=PLAIN)
    assert (found, set(unjudged)) == ([], {"A2"})


def test_reading_a_backlog_after_a_hold_is_not_a_fault(lab, tmp_path):
    """The readers are a member that obeyed the hold and one that joined during the hold."""
    operator, tps = Operator(lab), lab.topic("t", 2, records=10)
    settings = {"control": CONTROL, "journal": tmp_path}
    first = lab.member(SafeConsumer, "t", **settings)
    lab.until(lambda: len(first.records) == 20)
    operator.hold("t")
    operator.wait_until_quiet()
    for tp in tps:
        lab.append(tp, 40, first=10)
    second = lab.member(SafeConsumer, "t", name="b", **settings)
    second.owns(1)
    first.call(lambda consumer: consumer.commit())
    operator.lift("t")
    lab.until(lambda: len(first.records) + len(second.records) >= 60)
    lab.kill(first.process)
    second.owns(2)
    lab.until(lambda: {*range(50)} <= {*second.values(tps[0]), *first.values(tps[0])})
    second.call(lambda consumer: consumer.commit())
    second.stop()
    assert (
        verdict_in(
            tmp_path, uncompacted=PLAIN, control=read_control(lab.connection, "ops")
        )
        == CLEAN
    )


@pytest.mark.parametrize("skew", [0.0, 2.0])
def test_member_without_control_is_judged_by_its_own_clock_if_allowed(
    lab, tmp_path, skew
):
    """Records have producers' times; only the member's clock tells when they arrived."""
    operator, (tp,) = Operator(lab), lab.topic("t", records=10)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path)
    reader.take(10)
    operator.hold("t")
    lab.sleep(20)
    operator.lift("t")
    lab.sleep(20)
    lab.append(tp, 10, first=10)
    reader.take(10)
    reader.consumer.close()
    control = read_control(lab.connection, "ops")
    found, unjudged = verdict_in(
        tmp_path, uncompacted=PLAIN, control=control, clock_skew=skew
    )
    assert (found, set(unjudged)) == ([], set() if skew else {"G2"})
    assert skew or "--clock-skew" in unjudged["G2"]


@in_both
@pytest.mark.parametrize("target", [8, 15], ids=["back", "forward"])
def test_audit_finds_no_fault_in_a_programs_seek(lab, tmp_path, executor, target):
    """The program seeks while handlers are running; later another worker continues."""
    (tp,) = filled(lab, 1, *["slow"] * 30)
    how = {"executor": executor, "order": "unordered", "concurrency": 4}
    for end in (30, 40):
        handler = Handler(lab, slow=0.3)
        run = journaled(lab, tmp_path, handler, {"max_poll_records": 20}, **how)
        if end == 30:
            run.done(3)
            run.consumer.seek(tp, target)
        lab.until(lambda end=end: committed(lab) == [end], 100.0)
        run.stop()
        lab.append(tp, 10)
    assert verdict_in(tmp_path, uncompacted=PLAIN) == CLEAN


def test_reading_a_compacted_topic_is_not_a_fault(lab, tmp_path):
    """Members in turn read the topic while it is compacted."""
    (tp,) = lab.topic("t")
    for start in (0, 30):
        records = [
            NewRecord(key=b"%d" % (n % 7), value=b"%d" % n)
            for n in range(start, start + 30)
        ]
        for record in records:
            lab.cluster.append("t", 0, [record])
        reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, max_poll_records=5)
        reader.take(3)
        lab.cluster.compact("t")
        wanted = range(start, start + 30)
        reader.until(lambda one=reader, end=wanted[-1]: end in one.offsets(tp))
        reader.consumer.commit()
        reader.consumer.close()
    assert len({one["from"] for one in entries_in(tmp_path, "deliver")}) > 3
    assert verdict_in(tmp_path) == CLEAN


def test_deleted_journal_is_named_as_the_reason(lab, tmp_path):
    """The deleted journal may have had other entries, so the audit reports no violation."""
    (tp,) = lab.topic("t", records=30)
    for name in "abc":
        folder = tmp_path / name
        reader = Reader(lab, SafeConsumer, "t", journal=folder, client_id=name)
        reader.take(10)
        reader.consumer.commit()
        reader.consumer.close()
        (path,) = folder.glob("*.journal")
        path.rename(tmp_path / f"{name}.journal")
    assert verdict_in(tmp_path, uncompacted=PLAIN) == CLEAN
    (tmp_path / "b.journal").unlink()
    found, unjudged = verdict_in(tmp_path, uncompacted=PLAIN)
    assert (found, set(unjudged)) == ([], {"A2", "A4", "A6"})
    assert all("the journal of b-" in why for why in unjudged.values())
    assert lab.committed(tp) == 30


@pytest.mark.parametrize("commits_itself", [True, False])
def test_commits_before_a_transaction_marker_are_not_a_fault(
    lab, tmp_path, commits_itself
):
    """The client commits the offset after the marker, the program the one before it."""
    (tp,) = lab.topic("t")
    producer = KafkaProducer(**lab.connection, transactional_id="t")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(3):
        producer.send("t", partition=0, value=b"%d" % number)
    producer.commit_transaction()
    producer.close()
    settings = {"isolation_level": "read_committed", "journal": tmp_path}
    settings |= {"enable_auto_commit": commits_itself, "auto_commit_interval_ms": 1000}
    reader = Reader(lab, SafeConsumer, "t", **settings)
    reader.until(lambda: len(reader.log) == 3)
    for _ in range(20):
        reader.poll(0.2)
    last = reader.log[-1]
    reader.consumer.commit({tp: OffsetAndMetadata(last.offset + 1, "", -1)})
    reader.consumer.close(autocommit=False)
    asked = [one["offsets"]["t:0"] for one in entries_in(tmp_path, "call")]
    assert asked == ([4, 3] if commits_itself else [3])
    assert verdict_in(tmp_path) == CLEAN
