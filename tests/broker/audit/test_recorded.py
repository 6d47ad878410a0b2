"""What a real consumer did, written down and judged."""

import itertools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.audit.checker import Settings, check, findings_of
from safeconsumer.audit.journal import Journal, read
from safeconsumer.audit.journaling import holds_hook
from safeconsumer.cli import records
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.testing.clients import Clients
from tests.broker.audit.test_built_in import filled
from tests.harness.audit.recorded import Recorded
from tests.harness.audit.telling import Telling
from tests.harness.polling import collect, poll_until
from tests.harness.waiting import LIMIT


def produced(clients: Clients, topic: str, journal: JournalWriter) -> None:
    producer = KafkaProducer(**clients._broker.client_config)
    for partition in range(2):
        sent = [producer.send(topic, b"x", partition=partition) for _ in range(20)]
        offsets = [one.get(10).offset for one in sent]
        run = {"first": offsets[0], "last": offsets[-1]}
        journal.write("acked", {"tp": f"{topic}:{partition}", **run})
    producer.close()


def came(consumer: Recorded, count: int) -> dict[TopicPartition, list[int]]:
    got: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + LIMIT
    while sum(map(len, got.values())) < count:
        assert time.monotonic() < deadline, got
        collect(got, consumer.poll(5_000))  # longer than a join takes
    return got


def judged(journals: list[Journal]) -> set[str]:
    found = findings_of(check(journals, Settings(is_drained=True)))
    return {one.check for several in found.values() for one in several}


@pytest.mark.any_broker
def test_a_seek_to_the_beginning_or_the_end_is_written_down(
    clients: Clients, tmp_path: Path
) -> None:
    """Back is no fault; what a seek passes over is missing, and told without producers."""
    topic = clients.topic(2)
    with_acks = JournalWriter(tmp_path, member="producer")
    produced(clients, topic, with_acks)
    own = JournalWriter(tmp_path, member="reader", group="g")
    raw = clients.consumer(SafeConsumer, group_id=f"g-{topic}")
    consumer = Recorded(raw, own)
    one = TopicPartition(topic, 0)
    consumer.assign([one])
    came(consumer, 20)
    consumer.seek_to_beginning()
    came(consumer, 20)
    consumer.seek_to_beginning(one)
    consumer.commit()
    came(consumer, 20)
    assert judged([read(own.path)]) == set()
    produced(clients, topic, with_acks)
    consumer.seek_to_end(one)
    consumer.position(one)  # by now it knows where the end is
    consumer.commit()
    produced(clients, topic, with_acks)
    came(consumer, 20)
    found = findings_of(check([read(own.path)]))
    (missing,) = found[topic, 0]
    assert (missing.check, missing.offset) == ("A2", 20)


@pytest.mark.any_broker
def test_every_way_to_hold_and_to_commit_is_written_down(
    clients: Clients, tmp_path: Path
) -> None:
    """The whole consumer too, when a hold ends by itself, and what came of a commit."""
    topic = clients.topic(2)
    produced(clients, topic, JournalWriter(tmp_path / "producer"))
    own = JournalWriter(tmp_path, member="reader", group="g")
    raw = clients.consumer(SafeConsumer, group=f"g-{topic}")
    consumer = Recorded(raw, own, generation=lambda: 7)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.pause_all(owner="ops")
    consumer.resume_all(owner="ops")
    began = own.now()
    consumer.pause(topic, for_=60.0)
    consumer.resume(topic)
    came(consumer, 20)
    answers: list[Any] = []
    consumer.commit_async(callback=lambda *answer: answers.append(answer[1]))
    poll_until(consumer, lambda: bool(answers))
    entries = read(own.path).entries
    assert [one["generation"] for one in entries if one.event == "assigned"] == [7]
    done = [one for one in entries if one.event == "return" and one["op"] != "poll"]
    assert [(one["op"], one["scopes"], one["owner"]) for one in done] == [
        ("pause", ["@all"], "ops"),
        ("resume", ["@all"], "ops"),
        ("pause", [topic], "app"),
        ("resume", [topic], "app"),
        ("commit", None, None),
    ]
    assert done[-1]["offsets"] == {f"{topic}:0": 20}
    assert began <= done[2]["until"] - 60 <= done[2].at


@pytest.mark.any_broker
def test_what_a_client_commits_by_itself_is_not_called_right(
    clients: Clients, tmp_path: Path
) -> None:
    """A4, A5, A6: kafka-python commits unseen unless it is told not to; status 2."""
    topic, group = clients.topic(2), uuid4().hex
    produced(clients, topic, JournalWriter(tmp_path / "producer"))
    own = JournalWriter(tmp_path, member="reader")
    raw = clients.consumer(KafkaConsumer, group=group, enable_auto_commit=True)
    consumer = Recorded(raw, own)
    consumer.subscribe([topic])
    came(consumer, 40)
    consumer.close()
    done = CliRunner().invoke(safeconsumer, ["audit", str(tmp_path)])
    assert done.exit_code == 2, done.output
    for check_ in ("A4", "A5", "A6"):
        assert f"{check_}  {topic}:0 of {group}  could not be judged" in done.stdout
    assert "commits by itself, and its journal does not tell what" in done.stdout


def told_in(folder: Path, told: Telling) -> None:
    (folder / "a.journal").write_text(told.text())


def against_topic(clients: Clients, folder: Path) -> Result:
    where = ["--against-topic", "--bootstrap", clients._broker.bootstrap]
    return CliRunner().invoke(safeconsumer, ["audit", str(folder), *where])


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("deleted", "read", "said"),
    [
        (0, 4, "acknowledged offsets 4 to 5"),
        # What was deleted before anybody read it came to nobody, too.
        (6, 3, "nobody delivered offsets 3 to 5"),
    ],
)
def test_what_a_client_lost_is_found_in_the_topic(
    clients: Clients, tmp_path: Path, deleted: int, read: int, said: str
) -> None:
    """A run that hides a record looks whole, but the topic has it."""
    topic = filled(clients, 1, 10)
    if deleted:
        with KafkaAdminClient(**clients._broker.client_config) as admin:
            admin.delete_records({TopicPartition(topic, 0): deleted})
    told = Telling("a").assigned(f"{topic}:0").poll(f"{topic}:0", 0, read)
    told.revoked(f"{topic}:0").assigned(f"{topic}:0", generation=3)
    told_in(tmp_path, told.poll(f"{topic}:0", 6, 10))
    done = against_topic(clients, tmp_path)
    assert (done.exit_code, said in done.stdout) == (1, True), done.output
    assert f"A2  {topic}:0" in done.stdout


@pytest.mark.any_broker
def test_a_topic_that_is_gone_stays_gone_and_is_not_clean(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading makes nothing; a partition that does not exist is named, without waiting."""
    monkeypatch.setattr(records, "_PATIENCE", 7200)  # polls of half a second: an hour
    there = clients.topic(1)
    gone = f"{there}-gone"
    told = Telling("a").assigned(f"{gone}:0", f"{there}:0", f"{there}:7")
    told.poll(f"{gone}:0", 0, 10).pause(f"{there}:0").poll(f"{there}:0", 0, 1)
    told_in(tmp_path, told)
    done = against_topic(clients, tmp_path)
    assert done.exit_code == 1, done.output
    assert f"A1  {there}:0" in done.stdout  # what journals prove is said all the same
    assert f"the topic {gone} does not exist" in done.stderr
    assert f"{there}:7 does not exist: the topic has 1 partition" in done.stderr
    with KafkaAdminClient(**clients._broker.client_config) as admin:
        assert gone not in admin.list_topics()
    told_in(tmp_path, Telling("a").assigned(f"{gone}:0").poll(f"{gone}:0", 0, 10))
    done = against_topic(clients, tmp_path)
    assert (done.exit_code, "could not tell" in done.stdout) == (2, True)


def test_holds_from_elsewhere_are_written_down(tmp_path: Path) -> None:
    """Those of operators; the application's own are in its calls."""
    journal = JournalWriter(tmp_path)
    ledger = PauseLedger((holds_hook(journal),))
    scope = scopes.parse("orders")
    hold = Hold(scope=scope, owner="operator:eve")
    ledger.follow([hold], ())
    ledger.place([scope], owner="app")
    ledger.follow((), [hold.key])
    ledger.deliver()
    entries = read(journal.path).entries
    assert [(one.event, one["owner"]) for one in entries] == [
        ("hold", "operator:eve"),
        ("lift", "operator:eve"),
    ]


def test_waiting_for_the_processor_does_not_put_a_journals_clock_back(
    tmp_path: Path,
) -> None:
    """Found by the soak: journals of a busy machine differed by 26 ms."""
    steps = itertools.chain([1, 500], itertools.repeat(1))
    passed = itertools.accumulate(steps)  # it waits before the second look
    journal = JournalWriter(
        tmp_path,
        clock=lambda: float(next(passed)),
        wall=lambda: float(next(passed)) + 5000,
    )
    assert journal.now() - next(passed) == pytest.approx(5000, abs=2)


def test_a_child_forked_in_the_middle_of_a_write_writes_on(tmp_path: Path) -> None:
    """The thread that wrote is not there to give back the lock."""
    journal = JournalWriter(tmp_path)
    is_held, may_end = threading.Event(), threading.Event()

    def writing() -> None:
        with journal._lock:
            is_held.set()
            may_end.wait(2 * LIMIT)

    thread = threading.Thread(target=writing)
    thread.start()
    is_held.wait(LIMIT)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)  # ends a child that waits for ever
        try:
            journal.write("call", {"op": "poll", "id": 1})
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    may_end.set()
    thread.join()
    assert status == 0
