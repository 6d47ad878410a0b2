"""Tests ``SafeConsumer(journal=...)``, which makes a consumer journal its actions."""

import os
import signal
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import IllegalStateError, KafkaError

from safeconsumer import SafeConsumer
from safeconsumer.cli import records
from safeconsumer.cli.against import topic_journal
from safeconsumer.cli.errors import CommandError
from safeconsumer.errors import HookTypeError, JournalError
from safeconsumer.group import clients as control_clients
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.journals import entries_in, faults_in, journals_in
from tests.harness.kafka.patience import patient
from tests.harness.polling import poll_until
from tests.harness.producing import filled


def has(got, count):
    return lambda: sum(map(len, got.values())) >= count


@pytest.mark.contract("S5")
@pytest.mark.any_broker
def test_journal_of_a_consumer_from_creation_to_close_passes_the_audit(
    clients, tmp_path
):
    topic = filled(clients)
    first = TopicPartition(topic, 0)
    consumer = clients.consumer(
        SafeConsumer,
        group=uuid4().hex,
        journal=tmp_path,
        max_poll_records=7,
        session_timeout_ms=30_000,
    )
    consumer.subscribe([topic])
    consumer.pause(first, reason="x")
    got = {}
    poll_until(consumer, has(got, 20), got=got)
    assert first not in got
    consumer.resume(first)
    poll_until(consumer, has(got, 40), got=got)
    consumer.commit()
    consumer.seek(first, 15)
    poll_until(consumer, has(got, 45), got=got)
    consumer.commit({first: OffsetAndMetadata(17, "", -1)})
    with pytest.raises(ValueError, match="Unassigned"):
        consumer.seek(TopicPartition(topic, 9), 0)
    consumer.close()
    delivered = entries_in(tmp_path, "deliver")
    assert sum(one["count"] for one in delivered) == 45
    assert all(one["count"] <= 7 for one in delivered)
    (assigned,) = entries_in(tmp_path, "assigned")
    assert assigned["partitions"] == [f"{topic}:0", f"{topic}:1"]
    assert assigned["generation"] >= 1
    (gone,) = entries_in(tmp_path, "revoked", "lost")
    assert gone["partitions"] == assigned["partitions"]
    calls = [one["op"] for one in entries_in(tmp_path, "call") if one["op"] != "poll"]
    assert calls[:5] == ["pause", "resume", "commit", "seek", "commit"]
    failed = [one["op"] for one in entries_in(tmp_path, "return") if one["ok"] is False]
    assert failed == ["seek"]
    assert faults_in(tmp_path) == []


def test_signal_handler_can_write_to_the_journal_during_another_write(tmp_path):
    """The handler does not wait for a lock, and the journal has every entry."""
    writer = JournalWriter(tmp_path)
    numbers = iter(range(10_000))

    def handle(_number, _frame):
        writer.write("note", {"n_th": next(numbers)})

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for number in range(5_000):
            writer.write("call", {"op": "poll", "id": number})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    writer.write("end", {})
    written = [one["n_th"] for one in entries_in(tmp_path, "note")]
    assert len(written) > 3
    # The numbers are sorted, because calls to the handler may interrupt each other.
    assert sorted(written) == list(range(next(numbers)))
    assert len(entries_in(tmp_path, "call")) == 5_000


@pytest.mark.any_broker
def test_closed_consumer_writes_no_entries_to_its_journal(clients, tmp_path):
    topic = clients.topic(1)
    consumer = clients.consumer(SafeConsumer, topic, journal=tmp_path)
    with consumer.held(topic):
        consumer.close()
        entries = len(journals_in(tmp_path)[0].lines)
    consumer.pause(topic)
    consumer.resume(topic)
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll()
    assert len(journals_in(tmp_path)[0].lines) == entries


@pytest.mark.any_broker
def test_audit_ends_a_hold_with_its_consumer_even_if_the_next_one_shares_the_writer(
    clients, tmp_path
):
    """In an earlier version, check A1 wrongly reported the next consumer's records."""
    topic, group = filled(clients, 1), uuid4().hex
    writer = JournalWriter(tmp_path, member="a", group=group)
    for count in (20, 40):
        consumer = clients.consumer(
            SafeConsumer, topic, group=group, journal=writer, enable_auto_commit=False
        )
        poll_until(consumer, has(got := {}, 20), got=got)
        consumer.pause(topic, owner="me")
        consumer.close()
        assert sum(one["count"] for one in entries_in(tmp_path, "deliver")) == count
    writer.close()
    assert len(journals_in(tmp_path)) == 2
    assert faults_in(tmp_path) == []


@pytest.mark.parametrize(
    "wrong", [{"hooks": [3]}, {"no_such_setting": 1}, {"hooks": 3}], ids=str
)
def test_consumer_that_cannot_be_created_leaves_no_file_open(tmp_path, wrong):
    """A program that retries until a broker responds must not run out of file descriptors."""
    where = {"bootstrap_servers": "127.0.0.1:1", "journal": tmp_path}
    with pytest.raises((HookTypeError, AssertionError, KafkaError)):
        SafeConsumer(**where, **wrong)
    opened = {os.path.realpath(one) for one in Path("/dev/fd").iterdir()}
    folder = str(tmp_path.resolve())
    assert not [one for one in opened if one.startswith(folder)]  # removed or not


@pytest.mark.any_broker
def test_unwritable_journal_folder_is_refused_before_any_thread_starts(
    clients, tmp_path
):
    (tmp_path / "file").touch()
    before = set(threading.enumerate())
    with pytest.raises(JournalError, match="no journal can be written"):
        clients.consumer(SafeConsumer, journal=tmp_path / "file")
    assert set(threading.enumerate()) <= before  # threads of other tests may end


@pytest.mark.parametrize("journal", ["", b"", 3, True, [], {"a": 1}], ids=repr)
def test_journal_that_is_not_a_folder_is_refused(journal):
    """``JournalError`` is raised before the consumer connects or writes a file."""
    with pytest.raises(JournalError, match="journal"):
        SafeConsumer(bootstrap_servers="127.0.0.1:1", journal=journal)


@pytest.mark.embedded_broker
def test_reading_a_topic_for_the_audit_fails_if_the_broker_stops_responding(
    clients, monkeypatch
):
    """The broker responds to the request for end offsets, and then freezes."""
    topic, broker = filled(clients, 2, 20), clients._broker

    class Silenced(SafeConsumer):
        def end_offsets(self, *asked, **more):
            found = super().end_offsets(*asked, **more)
            broker.freeze()
            return found

    monkeypatch.setattr(control_clients, "SafeConsumer", Silenced)
    monkeypatch.setattr(records, "_MAX_IDLE_POLLS", 2)
    # The client's requests do not time out before the test does.
    more = patient(3_600_000, connections_max_idle_ms=7_200_000)
    base = {**broker.client_config, **more}
    try:
        with pytest.raises(CommandError, match="is the broker up"):
            topic_journal(base, [(topic, 0), (topic, 1)])
    finally:
        broker.unfreeze()


@pytest.mark.any_broker
def test_reading_a_topic_for_the_audit_fails_if_records_are_deleted_during_the_read(
    clients, monkeypatch
):
    """An earlier version continued at the end, as if no record existed before it."""
    topic, config = filled(clients, 1, 20), clients._broker.client_config

    class Deleted(SafeConsumer):
        def end_offsets(self, *asked, **more):
            found = super().end_offsets(*asked, **more)
            with KafkaAdminClient(**config) as admin:
                admin.delete_records({TopicPartition(topic, 0): 10})
            return found

    monkeypatch.setattr(control_clients, "SafeConsumer", Deleted)
    with pytest.raises(CommandError, match="deleted while their topic was read"):
        topic_journal(config, [(topic, 0)])


def test_consumer_that_cannot_be_created_leaves_no_journal(tmp_path):
    """A program that retried until a broker responded used to leave many journals behind."""
    for _ in range(2):
        with pytest.raises(KafkaError):
            SafeConsumer(
                "orders",
                bootstrap_servers="127.0.0.1:1",
                bootstrap_timeout_ms=100,
                group_id="g",
                journal=tmp_path,
            )
    assert list(tmp_path.iterdir()) == []
    own = JournalWriter(tmp_path, member="a")
    with pytest.raises(KafkaError):
        SafeConsumer(
            bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100, journal=own
        )
    # The folder contains only the journal of the writer itself.
    assert list(tmp_path.iterdir()) == [own.path]
    own.close()


@pytest.mark.any_broker
def test_audit_reads_all_partitions_of_a_named_topic(clients):
    """The audit also reads partitions that no journal names."""
    topic = filled(clients, 3, 20)
    found, missing = topic_journal(clients._broker.client_config, [(topic, 1)])
    assert missing == []
    written = {(one.tp, one.first, getattr(one, "last", None)) for one in found.entries}
    names = [f"{topic}:{number}" for number in range(3)]
    assert written == {(name, 0, last) for name in names for last in (None, 19)}
