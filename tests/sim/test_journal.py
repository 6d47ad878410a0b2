"""``SafeConsumer(journal=...)`` and the audit, which finds no fault in correct programs."""

import threading
from contextlib import suppress

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer.audit.results import Settings
from safeconsumer.errors import BlockingCallInListenerError, JournalError
from safeconsumer.holds.hold import WHOLE, Lifetime
from safeconsumer.holds.table import Table
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._offsets import Offsets
from tests.harness.audit.journals import (
    check,
    entries_in,
    faults_in,
    journals_in,
    verdict_in,
)
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import (
    COOPERATIVE,
    EAGER,
    Listener,
    Reader,
    at,
    both_protocols,
    both_ways,
)

# ------------------------------------------------------------ entries


@pytest.mark.parametrize("group", [None, "g"])
def test_partition_dropped_by_assign_is_written_as_revoked_not_lost(
    lab, tmp_path, group
):
    tps = lab.topic("t", 2, records=3)
    reader = Reader(
        lab, SafeConsumer, tps=tps, journal=tmp_path, group_id=group, log=False
    )
    reader.take(6)
    reader.consumer.pause(tps[0])
    reader.consumer.assign(tps[1:])
    reader.consumer.assign(tps)
    reader.poll(1.0)
    reader.consumer.unsubscribe()
    reader.consumer.close(autocommit=False)
    found = [
        (one.event, one["partitions"], one["generation"])
        for one in entries_in(tmp_path, "assigned", "revoked", "lost")
    ]
    assert found == [
        ("assigned", ["t:0", "t:1"], -1),
        ("revoked", ["t:0"], -1),
        ("assigned", ["t:0"], -1),
        ("revoked", ["t:0", "t:1"], -1),
    ]
    assert verdict_in(tmp_path) == ([], {})


@both_ways
def test_polls_without_records_are_not_written(lab, tmp_path, how):
    tps = lab.topic("t")
    reader = Reader(lab, SafeConsumer, tps=tps, how=how, journal=tmp_path)
    reader.until(lambda: entries_in(tmp_path, "log_start"))
    before = len(journals_in(tmp_path)[0].lines)
    for _ in range(200):
        assert reader.poll(0.01) == []
    assert len(journals_in(tmp_path)[0].lines) == before
    reader.consumer.close()


def test_each_iteration_step_is_an_entry_with_its_start_time(lab, tmp_path):
    tps = lab.topic("t", records=3)
    reader = Reader(lab, SafeConsumer, tps=tps, how="iterate", journal=tmp_path)
    reader.take(3)
    reader.consumer.close()
    first, second, third = entries_in(tmp_path, "deliver")
    runs = [(one["from"], one["next"]) for one in (first, second, third)]
    assert runs == [(0, 1), (1, 2), (2, 3)]
    assert first.at <= second["asked"] <= second.at
    assert first["created"] <= first.at
    assert first["written"] is None


def test_repeated_commit_is_written_once(lab, tmp_path):
    """By default the client commits all its partitions every five seconds."""
    tp, _ = lab.topic("t", 2, records=5)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000}
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, **settings)
    reader.take(10)
    for _ in range(100):
        reader.poll(0.1)
    commits = [one["offsets"] for one in entries_in(tmp_path, "call")]
    assert [sum(name in one for one in commits) for name in ("t:0", "t:1")] == [1, 1]
    reader.consumer.seek(tp, 3)
    reader.consumer.commit({tp: at(5)})
    assert [check for check, _ in faults_in(tmp_path)] == ["A5"]
    before = len(entries_in(tmp_path, "call"))
    lab.cluster.fail("OffsetCommit", error=30, count=1)  # not authorized
    for _ in range(3):
        with suppress(KafkaError):
            reader.consumer.commit({tp: at(3)})
    answers = [one["ok"] for one in entries_in(tmp_path, "return")][before:]
    assert answers == [False, None]
    reader.consumer.close()


@simulated(seeds=1, nightly=2)
def test_commit_is_judged_by_the_position_at_the_time_of_its_call(lab, tmp_path):
    """A seek back after ``commit_async()`` does not make the commit wrong."""
    (tp,) = lab.topic("t", records=50)
    settings = {"group_id": GROUP, "max_poll_records": 10, "journal": tmp_path}
    consumer = SafeConsumer(**lab.settings(**settings))
    consumer.assign([tp])
    for _ in range(3):
        while not (polled := consumer.poll(500)):
            pass
        answer = consumer.commit_async()
        consumer.seek(tp, polled[tp][-1].offset)
    while not answer.is_done:  # close() would cancel the commit
        consumer.poll(500)
    consumer.close()
    assert lab.committed(tp) == 28
    assert faults_in(tmp_path) == []
    calls = [one["op"] for one in entries_in(tmp_path, "call")]
    assert calls == ["assign", *["commit", "seek"] * 3]
    assert [one["ok"] for one in entries_in(tmp_path, "return")] == [None] * 7


def test_commit_names_its_journal_and_the_next_owner_writes_that_name(lab, tmp_path):
    (tp,) = lab.topic("t", records=5)
    first = Reader(lab, SafeConsumer, "t", journal=tmp_path / "first")
    first.take(5)
    assert [one["offsets"] for one in entries_in(tmp_path / "first", "committed")] == [
        {"t:0": None}
    ]
    sent = {tp: at(5)}
    first.consumer.commit(sent)
    assert sent == {tp: at(5)}
    first.consumer.close()
    second = Reader(lab, SafeConsumer, "t", journal=tmp_path / "second")
    second.until(lambda: entries_in(tmp_path / "second", "begins"))
    second.consumer.close()
    (maker,) = journals_in(tmp_path / "first")
    (call,) = entries_in(tmp_path / "first", "call")
    found = entries_in(tmp_path / "second", "committed", "begins")
    assert [one.event for one in found] == ["committed", "begins"]
    assert found[0]["offsets"] == {"t:0": 5}
    assert found[0]["notes"] == {"t:0": f"journal:{maker.member}#{call.number}"}


def read_on_in_turn(lab, folder, *commits):
    """Let members read three records each; all but the last one commit."""
    (tp,) = lab.topic("t")
    for number, commit in enumerate((*commits, None)):
        lab.append(tp, 3, first=3 * number)
        reader = Reader(
            lab, SafeConsumer, "t", journal=folder, enable_auto_commit=False
        )
        reader.take(3)
        if commit is not None:
            commit(reader.consumer, tp)
        reader.consumer.close()


@pytest.mark.contract("S5")
def test_commit_metadata_of_a_program_is_never_mistaken_for_a_note(lab, tmp_path):
    """The metadata ``build#42`` does not name a journal."""

    def commits(consumer, tp):
        consumer.commit({tp: OffsetAndMetadata(3, "build#42", -1)})
        assert consumer.committed(tp, metadata=True).metadata == "build#42"

    read_on_in_turn(lab, tmp_path, commits)
    assert verdict_in(tmp_path) == ([], {})


@pytest.mark.contract("S5")
def test_note_that_the_program_commits_again_is_renewed(lab, tmp_path):
    """The program commits the result of ``committed(metadata=True)`` at another offset."""

    def commits(consumer, _):
        consumer.commit()

    def gives_back(consumer, tp):
        found = consumer.committed(tp, metadata=True)
        consumer.commit({tp: found._replace(offset=6)})

    read_on_in_turn(lab, tmp_path, commits, gives_back)
    assert verdict_in(tmp_path) == ([], {})


@pytest.mark.parametrize("error", [12, 28], ids=["too-long", "commit-too-large"])
def test_commit_is_sent_without_its_note_if_the_broker_refuses_the_note(
    lab, tmp_path, error
):
    """A broker's ``offset.metadata.max.bytes`` may be smaller than a journal's name."""
    (tp,) = lab.topic("t", records=5)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path)
    reader.take(5)
    lab.cluster.fail("OffsetCommit", error=error, count=1)
    for offset in (4, 5):
        reader.consumer.commit({tp: at(offset)})
        found = reader.consumer.committed(tp, metadata=True)
        assert (found.offset, found.metadata) == (offset, "")
    assert [one["ok"] for one in entries_in(tmp_path, "return")] == [None, None]
    reader.consumer.close()


def refuses_notes(monkeypatch, digits):
    """
    Make brokers refuse notes whose number has at least this many digits.

    Return a list of the offsets that the brokers commit.
    """
    committed, keep = [], Offsets._keep

    def keeps(self, exchange, place):
        parts = [part for topic in exchange.body.topics for part in topic.partitions]
        numbers = [part.committed_metadata.rpartition("#")[2] for part in parts]

        def checked():
            if any(len(number) >= digits for number in numbers if number.isdigit()):
                raise RefusedError(12)  # the metadata is too large
            committed.extend(part.committed_offset for part in parts)
            return place()

        keep(self, exchange, checked)

    monkeypatch.setattr(Offsets, "_keep", keeps)
    return committed


@pytest.mark.parametrize("digits", [1, 2, 3], ids=["all", "from-10", "from-100"])
@simulated(seeds=1, nightly=4)
def test_commits_stay_in_order_if_a_broker_refuses_notes(
    lab, tmp_path, monkeypatch, digits
):
    """A refused commit is sent again before later asynchronous commits."""
    (tp,) = lab.topic("t", records=60)
    committed = refuses_notes(monkeypatch, digits)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, enable_auto_commit=False)
    reader.take(60)
    answers = []
    for offset in range(1, 61):
        reader.consumer.commit_async(
            {tp: OffsetAndMetadata(offset, "" if offset % 3 else "mine", -1)},
            callback=lambda _, error: answers.append(error),
        )
        lab.sleep(0.0005)
    reader.until(lambda: len(answers) == 60)
    reader.consumer.close()
    # With more than five unanswered commits kafka-python fails the next commit.
    assert committed == sorted(committed)
    assert len(committed) == answers.count(None) > 30


def test_commit_with_a_refused_note_is_sent_before_the_member_leaves(
    lab, tmp_path, monkeypatch
):
    """``unsubscribe()`` waits, because a broker refuses the commits of former members."""
    (tp,) = lab.topic("t", records=5)
    committed = refuses_notes(monkeypatch, 1)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, enable_auto_commit=False)
    reader.take(5)
    for offset in (3, 4):
        reader.consumer.commit_async({tp: at(offset)})
    reader.consumer.unsubscribe()
    reader.consumer.close()
    assert committed == [3, 4]


@pytest.mark.parametrize("digits", [1, 9], ids=["refused", "accepted"])
def test_all_commits_in_a_listener_are_sent_before_its_member_joins(
    lab, tmp_path, monkeypatch, digits
):
    """The first commit of a consumer is answered before the second commit is sent."""
    lab.topic("t", 2, records=9)
    committed = refuses_notes(monkeypatch, digits)
    reader = Reader(lab, SafeConsumer, journal=tmp_path, enable_auto_commit=False)

    def commits(revoked):
        for offset in (3, 4):
            reader.consumer.commit_async({tp: at(offset) for tp in revoked})

    reader.consumer.subscribe(["t"], listener=Listener(revoked=commits))
    reader.take(18)
    other, _ = reader.shares(SafeConsumer)
    assert list(dict.fromkeys(committed)) == [3, 4]  # of each partition
    other.stop()
    reader.consumer.close()


def test_refused_commit_is_not_written_as_successful(lab, tmp_path):
    """The consumer refuses a partition that it does not own; the broker refuses the rest."""
    first, second = lab.topic("t", 2, records=5)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path)
    reader.take(10)
    other, left = reader.shares(SafeConsumer)
    positions = {
        tp: reader.consumer.position(tp) for tp in (first, second) if tp != left
    }
    with pytest.raises(KafkaError):
        reader.consumer.commit({left: at(5)})
    assert entries_in(tmp_path, "call") == []
    lab.cluster.fail("OffsetCommit", error=30, count=1)  # not authorized
    with pytest.raises(KafkaError):
        reader.consumer.commit({tp: at(to) for tp, to in positions.items()})
    answers = [(one.event, one["ok"]) for one in entries_in(tmp_path, "call", "return")]
    assert answers == [("call", None), ("return", False)]
    other.stop()
    reader.consumer.close()


def test_offset_left_out_by_a_commit_is_not_written_as_committed(lab, tmp_path):
    """A deleted topic's offset is left out, so the next commit is journaled, too."""
    for name in ("gone", "stays"):
        lab.topic(name, records=3)
    more = {"allow_auto_create_topics": False, "metadata_max_age_ms": 300_000}
    reader = Reader(
        lab, SafeConsumer, "gone", "stays", journal=tmp_path, log=False, **more
    )
    reader.take(6)
    reader.consumer.pause("gone")
    lab.cluster.delete_topic("gone")
    for _ in range(2):
        reader.consumer.commit()
    both, left = {"gone:0": 3, "stays:0": 3}, {"stays:0": 3}
    written = [(one.event, one["offsets"]) for one in _commits_in(tmp_path)]
    assert written[:2] == [("call", both), ("return", left)]
    assert written[2][0] == "call"
    assert lab.committed(TopicPartition("stays", 0)) == 3
    reader.consumer.close(autocommit=False)


def _commits_in(folder):
    return [
        one for one in entries_in(folder, "call", "return") if one["op"] == "commit"
    ]


def test_hold_ended_by_a_cooperative_revocation_is_not_a_violation(lab, tmp_path):
    """The listener subscribes again, and the next join returns the partition."""
    for name in "ab":
        lab.topic(name, records=20)
    reader = Reader(
        lab, SafeConsumer, assignor=COOPERATIVE, journal=tmp_path, log=False
    )
    consumer, revoked = reader.consumer, []

    def subscribes_again(tps):
        revoked.extend(tps)
        consumer.subscribe(["a", "b"], listener=listener)

    listener = Listener(revoked=subscribes_again, lost=len)
    consumer.subscribe(["a", "b"], listener=listener)
    reader.until(lambda: len(consumer.assignment()) == 2, limit=1)
    tp = TopicPartition("a", 0)
    consumer.pause(tp, lifetime=Lifetime.WHILE_ASSIGNED)
    consumer.subscribe(["b"], listener=listener)
    reader.until(lambda: revoked and tp in consumer.assignment())
    reader.until(lambda: len([one for one in reader.log if one.topic == "a"]) >= 20)
    (lift,) = entries_in(tmp_path, "lift")
    assert (lift["scope"], lift["why"]) == ("a:0", "ended")
    consumer.close(autocommit=False)
    assert verdict_in(tmp_path) == ([], {})


def test_assignment_entry_has_the_ids_of_its_topics(lab, tmp_path):
    """A topic that was deleted and recreated has another id."""
    lab.topic("t", records=3)
    more = {"allow_auto_create_topics": False, "metadata_max_age_ms": 1000}
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, **more)
    reader.take(3)
    lab.cluster.delete_topic("t")
    reader.until(lambda: not reader.consumer.assignment())
    lab.topic("t", records=2)
    reader.until(reader.consumer.assignment)
    first, second = (one["topics"] for one in entries_in(tmp_path, "assigned"))
    assert first.keys() == second.keys() == {"t"}
    assert first != second
    # The ids have the form that kafka-topics prints.
    assert {len(one["t"]) for one in (first, second)} == {22}
    reader.consumer.close()


def test_topic_id_that_is_unknown_at_the_assignment_is_written_later(lab, tmp_path):
    tps = lab.topic("t", records=3)
    reader = Reader(lab, SafeConsumer, tps=tps, journal=tmp_path)
    reader.take(3)
    (assigned,) = entries_in(tmp_path, "assigned")
    (named,) = entries_in(tmp_path, "named")
    assert (assigned["topics"], named["tp"]) == ({}, "t:0")
    assert named["topics"] == {"t": id_text(lab.cluster.topics.get("t").id)}
    reader.consumer.close()


def test_each_call_that_holds_or_seeks_is_written_with_its_arguments(lab, tmp_path):
    (tp,) = lab.topic("t", records=20)
    reader = Reader(lab, SafeConsumer, tps=[tp], journal=tmp_path)
    reader.take(20)
    consumer = reader.consumer
    with consumer.held("t", owner="h"):
        consumer.pause_all(owner="ops")
        consumer.resume_all(owner="ops")
    began = consumer._safe_journal.writer.now()
    consumer.pause(tp, for_=60.0)
    consumer.resume(tp)
    consumer.seek_to_beginning()
    consumer.seek_to_end(tp)
    reader.until(lambda: len(entries_in(tmp_path, "begins")) == 2)
    consumer.seek(tp, 4)
    with pytest.raises(ValueError, match="Unassigned"):
        consumer.seek(TopicPartition("t", 9), 0)
    consumer.close()
    done = entries_in(tmp_path, "return")
    assert [
        (one["op"], one["scopes"] or one["offsets"], one["owner"]) for one in done
    ] == [
        ("assign", None, None),
        ("pause", ["t"], "h"),
        ("pause", ["@all"], "ops"),
        ("resume", ["@all"], "ops"),
        ("resume", ["t"], "h"),
        ("pause", ["t:0"], "app"),
        ("resume", ["t:0"], "app"),
        ("seek", {"t:0": None}, None),
        ("seek", {"t:0": None}, None),
        ("seek", {"t:0": 4}, None),
        ("seek", {"t:9": 0}, None),
    ]
    assert [one["lifetime"] for one in done[1:3]] == ["until_resumed"] * 2
    assert done[5]["lifetime"] == "plain"
    assert began <= done[5]["until"] - 60 <= done[5].at
    assert [one["offset"] for one in entries_in(tmp_path, "begins")] == [0, 20]


@pytest.mark.contract("S5")
@simulated(seeds=1, nightly=30, preempt=0.05)
def test_seeks_on_another_thread_are_judged_correctly(lab, tmp_path):
    """The running poll may return earlier records, and later polls obey the seek."""
    (tp,) = lab.topic("t", records=200)
    consumer = SafeConsumer(
        **lab.settings(group_id=None, journal=tmp_path, max_poll_records=5)
    )
    consumer.assign([tp])

    def polls():
        for _ in range(80):
            consumer.poll(10)

    polling = threading.Thread(target=polls)
    polling.start()
    while polling.is_alive():
        consumer.seek(tp, lab.rng.randrange(190))
        lab.sleep(lab.rng.random() / 1000)
    consumer.close()
    assert faults_in(tmp_path) == []


@pytest.mark.contract("S5")
@pytest.mark.parametrize("event", ["call", "return"])
@pytest.mark.parametrize("is_handler", [False, True])
def test_overlapping_seeks_are_written_without_a_target(
    lab, tmp_path, is_handler, event
):
    """The second seek runs during the first, on another thread or in a signal handler."""
    (tp,) = lab.topic("t", records=200)
    settings = {"group_id": None, "journal": tmp_path, "max_poll_records": 5}
    reader = Reader(lab, SafeConsumer, tps=[tp], **settings)
    reader.take(10)
    write, moved = reader.consumer._safe_journal.write, []

    def interrupted(kind, fields):
        if kind == "call":
            write(kind, fields)
        if kind == event and not moved:
            moved.append(fields)
            second = threading.Thread(target=lambda: reader.consumer.seek(tp, 100))
            second.run() if is_handler else second.start()
            lab.sleep(1)
        if kind != "call":
            write(kind, fields)

    reader.consumer._safe_journal.write = interrupted
    reader.consumer.seek(tp, 50)
    reader.take(10)
    reader.consumer.close()
    assert moved
    assert faults_in(tmp_path) == []


RESUMES = {
    "resume": lambda consumer: consumer.resume("t", owner="w"),
    "resume_all": lambda consumer: consumer.resume_all("w"),
}


@pytest.mark.contract("S5")
@pytest.mark.parametrize("resume", RESUMES.values(), ids=RESUMES)
def test_resume_during_another_threads_pause_is_not_judged(lab, tmp_path, resume):
    """The pause has placed its hold, and returns after the resume that lifted the hold."""
    (tp,) = lab.topic("t", records=20)
    reader = Reader(lab, SafeConsumer, tps=[tp], group_id=None, journal=tmp_path)
    journal = reader.consumer._safe_journal
    write, lifting = journal.write, [lambda: resume(reader.consumer)]

    def slow(kind, fields):
        if kind == "return" and fields["op"] == "pause":
            lifting.pop()()
        write(kind, fields)

    journal.write = slow
    reader.consumer.pause("t", owner="w")
    reader.take(20)
    reader.consumer.close()
    found, unjudged = verdict_in(tmp_path)
    assert (found, [*unjudged]) == ([], ["A1"])
    assert "another thread's call" in unjudged["A1"]


@pytest.mark.contract("S5")
def test_resume_all_that_lifts_a_pause_of_another_thread_is_not_judged(lab, tmp_path):
    """The pause runs after ``resume_all`` has read the holds that it will lift."""
    (tp,) = lab.topic("t", records=20)
    reader = Reader(lab, SafeConsumer, tps=[tp], group_id=None, journal=tmp_path)
    ledger = reader.consumer._safe_ledger
    remove = ledger.remove_owner

    def removed(owner):
        reader.consumer.pause("t", owner="w")
        remove(owner)

    ledger.remove_owner = removed
    assert reader.consumer.resume_all("w") == ()
    reader.take(20)
    reader.consumer.close()
    found, unjudged = verdict_in(tmp_path)
    assert (found, [*unjudged]) == ([], ["A1"])


@pytest.mark.contract("S5")
def test_seek_returning_after_a_later_seek_is_written_without_a_target(lab, tmp_path):
    """The second seek starts during the first, sets its position first, and returns last."""
    (tp,) = lab.topic("t", records=200)
    settings = {"group_id": None, "journal": tmp_path, "max_poll_records": 5}
    reader = Reader(lab, SafeConsumer, tps=[tp], **settings)
    reader.take(10)
    write = reader.consumer._safe_journal.write
    second = threading.Thread(target=lambda: reader.consumer.seek(tp, 100))

    def slow(kind, fields):
        is_second = threading.current_thread() is second
        if kind == "return" and is_second:
            lab.sleep(2)
        write(kind, fields)
        if kind == "call" and not is_second:
            second.start()
            lab.sleep(1)

    reader.consumer._safe_journal.write = slow
    reader.consumer.seek(tp, 50)
    second.join()
    reader.take(10)
    reader.consumer.close()
    assert faults_in(tmp_path) == []


def test_refused_close_does_not_end_the_journal(lab, tmp_path):
    """After a rebalance listener has called close(), later entries are still written."""
    lab.topic("t", records=5)
    reader = Reader(lab, SafeConsumer, journal=tmp_path)
    refused = []

    def close(_):
        try:
            reader.consumer.close()
        except BlockingCallInListenerError as error:
            refused.append(error)

    reader.consumer.subscribe(["t"], listener=Listener(close))
    reader.take(5)
    assert refused
    assert sum(one["count"] for one in entries_in(tmp_path, "deliver")) == 5
    reader.consumer.close()


def test_commits_in_a_producers_transactions_are_judged_correctly(lab, tmp_path):
    """Successive members commit in transactions, one of which is aborted."""
    (tp,) = lab.topic("t", records=30)
    producer = KafkaProducer(**lab.connection, transactional_id="t")
    producer.init_transactions()
    readers = [Reader(lab, SafeConsumer, "t", journal=tmp_path)]
    readers[0].take(5)
    readers[0].consumer.commit()
    for is_kept in (True, False, True):
        records = readers[-1].take(5)
        metadata = readers[-1].consumer.group_metadata()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: at(records[-1].offset + 1)}, metadata)
        if is_kept:
            producer.commit_transaction()
            readers[-1].consumer.close()
            readers.append(Reader(lab, SafeConsumer, "t", journal=tmp_path))
        else:
            producer.abort_transaction()
            readers[-1].consumer.seek(tp, records[0].offset)
    readers[-1].take(15)
    readers[-1].consumer.close()
    assert lab.committed(tp) == 15
    assert verdict_in(tmp_path) == ([], {})
    assert len(entries_in(tmp_path, "unseen")) == 2


@pytest.mark.contract("S5")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"group_instance_id": "one"}, id="static"),
        pytest.param({}, id="dynamic"),
        pytest.param({"assignor": COOPERATIVE}, id="cooperative"),
        pytest.param({"enable_auto_commit": True}, id="auto-commit"),
        pytest.param(None, id="assign"),
    ],
)
def test_members_that_restart_repeatedly_are_judged_completely(lab, tmp_path, settings):
    """Each member replaces a member that closed with or without a commit."""
    (tp,) = lab.topic("t", records=40)
    where = {"tps": [tp], "group_id": GROUP} if settings is None else settings
    topics = () if settings is None else ("t",)
    for number in range(4):
        reader = Reader(lab, SafeConsumer, *topics, journal=tmp_path, **where)
        reader.take(10 if number % 2 else 7)
        reader.consumer.commit()
        reader.take(3)
        reader.consumer.close(autocommit=number == 2)
    found = [one for one in entries_in(tmp_path, "committed") if one["offsets"]["t:0"]]
    assert len(found) == 3
    assert verdict_in(tmp_path) == ([], {})


@pytest.mark.contract("S5")
def test_offset_moved_by_another_tool_is_reported_as_unjudged(lab, tmp_path):
    """The audit cannot tell whether the skipped records are lost, so it does not judge."""
    (tp,) = lab.topic("t", records=40)
    for offset in (None, 30):
        if offset is not None:
            mover = Reader(lab, KafkaConsumer, tps=[tp], group_id=GROUP)
            mover.consumer.commit({tp: at(offset)})
            mover.consumer.close()
        reader = Reader(lab, SafeConsumer, "t", journal=tmp_path)
        reader.take(10)
        reader.consumer.commit()
        reader.consumer.close()
    found, unjudged = verdict_in(tmp_path)
    assert (found, set(unjudged)) == ([], {"A2", "A4", "A6"})
    assert "a commit that is in no journal" in unjudged["A2"]


@both_ways
def test_journal_reports_a_transaction_before_its_records(lab, tmp_path, how):
    """The position moves past markers and aborted records, which are not delivered."""
    (tp,) = lab.topic("t")
    producer = KafkaProducer(**lab.connection, transactional_id="t")
    producer.init_transactions()
    for is_kept in (False, True):
        producer.begin_transaction()
        producer.send("t", b"v", partition=0).get()
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    committed = {"isolation_level": "read_committed"}
    reader = Reader(lab, SafeConsumer, "t", how=how, journal=tmp_path, **committed)
    reader.take(1)
    reader.until(lambda: reader.consumer.position(tp) == 4)
    reader.consumer.commit()
    reader.consumer.close()
    (moved,) = entries_in(tmp_path, "moved")
    assert (moved["from"], moved["next"]) == (3, 4)
    names = [one.event for journal in journals_in(tmp_path) for one in journal.lines]
    assert names.count("transactional") == 1
    assert entries_in(tmp_path, "assigned")[0]["cluster"]
    assert names.index("transactional") < names.index("deliver")
    settings = Settings(uncompacted=frozenset({tp.topic}))
    (verdict,) = check(journals_in(tmp_path), settings).values()
    assert (verdict.findings, verdict.unjudged) == ((), {})
    assert verdict.unrecorded


# ------------------------------------------------------------ full disks


@both_ways
def test_full_disk_leaves_no_gap_in_the_journal(lab, tmp_path, monkeypatch, how):
    """Polls raise until the disk has room, and no record is lost or delivered twice."""
    tps = lab.topic("t", 2, records=20)
    reader = Reader(lab, SafeConsumer, "t", how=how, journal=tmp_path)
    reader.take(8)
    writer = reader.consumer._safe_journal.writer

    def full(*_):
        message = "the disk is full"
        raise JournalError(message)

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr("safeconsumer.journal.writer._append", full)
            with pytest.raises(JournalError):
                reader.take(32)
            with pytest.raises(JournalError):
                reader.consumer.pause(tps[0])
            with pytest.raises(JournalError):
                reader.consumer.commit()
            with pytest.raises(JournalError):
                reader.poll()
        reader.take(4)
        reader.consumer.pause(tps[0])
        reader.consumer.resume(tps[0])
        reader.consumer.commit()
    reader.take(20)
    reader.consumer.close()
    assert [reader.offsets(tp) for tp in tps] == [[*range(20)]] * 2
    assert faults_in(tmp_path) == []
    assert writer.number == len(journals_in(tmp_path)[0].lines)


# ------------------------------------------------------------ planted faults


ENDS = Table.ends


def _forgets_pauses(table, hold, change):
    """End all plain and whole pauses whenever the assignment changes (KAFKA-13463)."""
    is_known = hold.lifetime is Lifetime.PLAIN or hold.owner == WHOLE
    return is_known or ENDS(table, hold, change)


@pytest.mark.contract("S5")
@pytest.mark.parametrize("names", ["one", "all"])
@both_protocols
def test_library_that_forgets_pauses_in_a_rebalance_fails_the_audit(
    lab, tmp_path, monkeypatch, assignor, names
):
    monkeypatch.setattr(Table, "ends", _forgets_pauses)
    tps = lab.topic("t", 4, records=20)
    settings = {"assignor": assignor, "max_poll_records": 5}
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, **settings)
    reader.until(lambda: len(reader.consumer.assignment()) == 4)
    paused = reader.consumer.assignment() if names == "all" else tps
    reader.consumer.pause(*paused)
    other = lab.member(SafeConsumer, "t", name="b", **settings)
    reader.until(lambda: len(reader.consumer.assignment()) == 2)
    for tp in tps:
        lab.append(tp, 5, first=20)
    reader.take(1)  # although no call has resumed the partitions
    other.stop()
    reader.consumer.close()
    assert "A1" in {check for check, _ in faults_in(tmp_path)}


@pytest.mark.parametrize("is_one_call", [True, False], ids=["together", "one by one"])
@both_protocols
@simulated(seeds=1, nightly=2, preempt=0.05)
def test_whole_pause_that_expires_is_judged_correctly(
    lab, tmp_path, assignor, *, is_one_call
):
    """The whole pause ends with the first of the pauses that name its partitions."""
    tps = lab.topic("t", 4, records=20)
    settings = {"assignor": assignor, "max_poll_records": 5}
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path, **settings)
    reader.until(lambda: len(reader.consumer.assignment()) == 4)
    several = reader.consumer.assignment()
    if is_one_call:
        reader.consumer.pause(*several, for_=3.0)
    else:
        for number, tp in enumerate(several):
            reader.consumer.pause(tp, for_=3.0 + number)
    for tp in tps:
        lab.append(tp, 5, first=20)
    reader.until(lambda: len(reader.offsets(tps[-1])) == 25)
    reader.until(lambda: len(reader.offsets(tps[0])) == 25)
    reader.consumer.close()
    (whole,) = (one for one in entries_in(tmp_path, "hold") if one["owner"] == WHOLE)
    ends = min(
        one["until"] for one in entries_in(tmp_path, "call") if one["op"] == "pause"
    )
    assert ends <= whole["until"] < ends + 1
    assert faults_in(tmp_path) == []


# ------------------------------------------------------------ fleets


class Program:
    """A member that makes random correct calls until the test sets ``is_draining``."""

    def __init__(self, lab, name, **settings):
        self.lab = lab
        self.is_draining = self.is_over = False
        base = {"group_id": GROUP, "client_id": name, "max_poll_records": 5}
        self._settings = lab.settings(**{**base, **settings})
        self.process, self.thread = lab.start(name, self._live)

    def _live(self):
        self.consumer = SafeConsumer("t", **self._settings)
        steps = (
            *(self._poll, self._poll, self._iterate, self._peek, self._commit),
            *(self._pause, self._resume, self._go, self._wait),
        )
        while not self.is_draining:
            with suppress(KafkaError, ValueError):  # the member may have left the group
                self.lab.rng.choice(steps)()
        for owner in ("app", "ops"):
            self.consumer.resume_all(owner=owner)
        while not self.is_over:
            self.consumer.poll(500)
        with suppress(KafkaError):
            self.consumer.commit()
        self.consumer.close()

    def _some(self):
        owned = sorted(self.consumer.assignment())
        return [tp for tp in owned if self.lab.rng.random() < 0.5]

    def _poll(self):
        self.consumer.poll(self.lab.rng.choice((0, 50, 500)))

    def _peek(self):
        self.consumer.poll(50, update_offsets=False)

    def _iterate(self):
        self.consumer.config["consumer_timeout_ms"] = 100
        for _ in range(self.lab.rng.randrange(8)):
            next(self.consumer, None)

    def _commit(self):
        self.lab.rng.choice((self.consumer.commit, self.consumer.commit_async))()

    def _pause(self):
        target = self.lab.rng.choice((self._some(), ["t"], ["re:t.*"], ["@all"]))
        owner, for_ = (
            self.lab.rng.choice(("app", "ops")),
            self.lab.rng.choice((None, 1)),
        )
        self.consumer.pause(*target, owner=owner, for_=for_)

    def _resume(self):
        owner = self.lab.rng.choice(("app", "ops"))
        if self.lab.rng.random() < 0.5:
            self.consumer.resume_all(owner)
        else:
            self.consumer.resume(*self._some(), "t", owner=owner)

    def _go(self):
        for tp in self._some():
            at = self.consumer.position(tp, timeout_ms=100)
            if at:
                # A position beyond the end of the log would be reset.
                end = self.consumer.highwater(tp) or at
                to = at + self.lab.rng.randrange(-4, 3)
                self.consumer.seek(tp, max(0, min(to, end)))
        if (some := self._some()) and self.lab.rng.random() < 0.2:
            go = self.consumer.seek_to_beginning, self.consumer.seek_to_end
            self.lab.rng.choice(go)(*some)

    def _wait(self):
        self.lab.sleep(self.lab.rng.random() * 3)


@pytest.mark.contract("S5")
@pytest.mark.parametrize(
    ("commits", "assignor"),
    [
        pytest.param(False, EAGER, id="eager"),
        pytest.param(True, COOPERATIVE, id="cooperative, auto-commit"),
        pytest.param(True, EAGER, id="eager, auto-commit", marks=pytest.mark.nightly),
        pytest.param(False, COOPERATIVE, id="cooperative", marks=pytest.mark.nightly),
    ],
)
@simulated(seeds=1, nightly=30, preempt=0.05)
def test_correct_programs_are_judged_correct(lab, tmp_path, assignor, *, commits):
    """Programs join, leave, hang and are killed, and every record is delivered."""
    tps = lab.topic("t", 3, records=20)
    settings = {
        "journal": tmp_path,
        "partition_assignment_strategy": [assignor],
        "enable_auto_commit": commits,
        "auto_commit_interval_ms": 700,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 1000,
    }
    there = [Program(lab, f"m{number}", **settings) for number in range(2)]
    for number in range(2, 6):
        lab.sleep(5 + lab.rng.random() * 5)
        for tp in tps:
            lab.append(tp, 20, first=20 * (number - 1))
        _strike(lab, there)
        there.append(Program(lab, f"m{number}", **settings))
    for one in there:
        one.is_draining = True
    lab.sleep(40)
    for one in there:
        one.is_over = True
    for one in there:
        if not one.process.is_dead:
            one.thread.join()
    producer = JournalWriter(tmp_path, member="producer")
    for tp in tps:
        producer.write("acked", {"tp": f"t:{tp.partition}", "first": 0, "last": 99})
    assert faults_in(tmp_path, is_drained=True) == []
    assert verdict_in(tmp_path)[1] == {}


def _strike(lab, there):
    one = lab.rng.choice([one for one in there if not one.process.is_dead])
    match lab.rng.choice(("kill", "hang", "leave", "")):
        case "kill":
            lab.kill(one.process)
        case "hang":
            lab.freeze(one.process)
            lab.sleep(8)
            lab.thaw(one.process)
        case "leave":
            one.is_draining = one.is_over = True
