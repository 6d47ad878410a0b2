"""``safeconsumer dead-letters``: what it lists and shows, and what it sends back."""

import itertools
import json
import re
import signal
import weakref
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli import dead_letters, letters
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.cli.replaying import Replay
from safeconsumer.worker import DeadLetter, Failure
from safeconsumer.worker.dead_letters import sink_of
from safeconsumer.worker.letters_format import letter_of
from tests.harness.listing import short
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices

SECONDS = 30


class Post:
    """A topic, its topic of dead letters, and letters as a worker writes them."""

    def __init__(self, broker, topic, dead, producer, make_consumer):
        self.broker, self.topic, self.dead = broker, topic, dead
        self.bootstrap = broker.bootstrap
        self.producer = producer
        self._make_consumer = make_consumer
        self._offsets = itertools.count()
        self.group = f"safeconsumer-replay-{dead}"

    def put(self, value=b"v", key=b"k", error=None, *, is_brief=False, **record):
        """Write one letter."""
        fields = {
            "topic": self.topic,
            "partition": 1,
            "offset": next(self._offsets),
            "timestamp": 1_700_000_000_000,
            "headers": [("trace", b"1")],
            **record,
        }
        failure = Failure(
            error=error or ValueError("planted"), attempts=3, is_brief=is_brief
        )
        send = sink_of(DeadLetter(self.producer, self.dead), "billing")
        future = send(SimpleNamespace(key=key, value=value, **fields), failure)
        future.get(SECONDS)

    def put_several(self, count):
        """Write so many letters, whose values are their numbers."""
        for number in range(count):
            self.put(b"%d" % number)

    def run(self, command, *options, topic=None):
        """Run a command on the topic of dead letters."""
        where = topic or self.dead
        arguments = ["dead-letters", command, where, *options]
        return CliRunner().invoke(
            safeconsumer, [*arguments, "--bootstrap", self.bootstrap]
        )

    def show(self, offset):
        return self.run("show", topic=f"{self.dead}:0@{offset}")

    def committed(self):
        """Return the group's offset; None if it has none."""
        consumer = self._make_consumer(KafkaConsumer, group=self.group)
        return consumer.committed(TopicPartition(self.dead, 0))

    def commit(self, offset):
        """Set the group's offset, as Kafka's own tools do."""
        consumer = self._make_consumer(KafkaConsumer, group=self.group)
        tp = TopicPartition(self.dead, 0)
        consumer.assign([tp])
        consumer.commit({tp: OffsetAndMetadata(offset, "", -1)})

    def back(self, topic=None):
        """Return the records of the topic that letters go back to."""
        name = topic or self.topic
        consumer = self._make_consumer(KafkaConsumer)
        tps = [TopicPartition(name, n) for n in consumer.partitions_for_topic(name)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(200).values():
                found += records
        return found


@contextmanager
def meddled(meddle):
    """
    Call something before a replay sends a letter, with its producer and the value.

    What that returns is what sending returns; after None the letter is sent as ever.
    """
    real = dead_letters.producer_of

    def producer_of(base):
        producer = real(base)
        send = producer.send

        def send_or_not(*args, **kwargs):
            return meddle(producer, kwargs["value"]) or send(*args, **kwargs)

        producer.send = send_or_not
        return producer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "producer_of", producer_of)
        yield


def replayed_from(record):
    """Return which letter a record was; None if it was none."""
    found = dict(record.headers).get("dead-letter-replayed-from")
    return None if found is None else found.decode()


@pytest.fixture
def post(kafka_broker, kafka_topic, make_producer, make_consumer):
    """Prepare the topics."""
    topics = kafka_topic(partitions=3), kafka_topic(partitions=1)
    return Post(kafka_broker, *topics, make_producer(), make_consumer)


# ------------------------------------------------------------ list


def test_list_is_a_table(post):
    post.put(error=KeyError("x" * 200))
    post.put(error=ValueError("first\nsecond"))
    ended = post.run("list")
    assert ended.exit_code == Status.DONE, ended.output
    head, one, two, count = ended.stdout.splitlines()
    names = "letter written from error attempts group message"
    assert (head.split(), count) == (names.split(), "2 letters")
    start = rf"{post.dead}:0@0 +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ +{post.topic}:1@0"
    assert re.match(rf"{start} +builtins.KeyError +3 +billing +'x+\.\.\.$", one), one
    assert "first..." in two


def test_a_list_ends_at_its_limit(post):
    """Of letters that fit; nothing behind the last one is read."""
    post.put(error=KeyError("a"))
    post.put_several(3)
    ended = post.run("list", "--limit=2", "--error=ValueError")
    _, one, two, count = ended.stdout.splitlines()
    assert [line.split()[0][-3:] for line in (one, two)] == ["0@1", "0@2"]
    assert count == "2 letters; there may be more than --limit"
    told = json.loads(post.run("list", "--limit=1", "-o", "json").stdout)
    assert [one["letter"] for one in told] == [f"{post.dead}:0@0"]
    assert json.loads(post.run("list", "--error=E", "-o", "json").stdout) == []


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_list_keeps_no_letter_that_it_has_printed(post, monkeypatch, form):
    """It kept 455 MB of 60,000 letters, and printed its first line behind the last."""
    monkeypatch.setattr(letters, "_MOST", 10)
    post.put_several(200)
    made, most = [], 0

    def noted(record):
        nonlocal most
        one = letter_of(record)
        made.append(weakref.ref(one))
        most = max(most, sum(letter() is not None for letter in made))
        return one

    monkeypatch.setattr(letters, "letter_of", noted)
    ended = post.run("list", "-o", form)
    assert ended.exit_code == Status.DONE, ended.output
    assert ended.stdout.count(f"{post.dead}:0@") == 200
    assert most <= 30


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--error=ValueError",), [1, 2]),
        (("--error=builtins.KeyError", "--error=ValueError"), [0, 1, 2]),
        (("--error=Error",), []),
        (("--from=TOPIC",), [0, 1, 2]),
        (("--from=TOPIC:1",), [0, 1]),
        (("--from=TOPIC:2@2",), [2]),
        (("--since=1h",), [0, 1, 2, 3]),
        (("--since=2020-01-02T00:00:00+02:00",), [0, 1, 2, 3]),
        ((), [0, 1, 2, 3]),
    ],
)
def test_filters(post, options, offsets):
    """All of them must fit; of repeated ones any. What is no letter has no origin."""
    post.put(error=KeyError("a"))
    post.put()
    post.put(partition=2)
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    named = [one.replace("TOPIC", post.topic) for one in options]
    ended = post.run("list", "-o", "json", *named)
    assert ended.exit_code == Status.DONE, ended.output
    found = [one["letter"] for one in json.loads(ended.stdout)]
    assert sorted(found) == [f"{post.dead}:0@{n}" for n in offsets]


@pytest.mark.parametrize("typed", [("list", "--since=yesterday"), ("show",)])
def test_wrong_usage(post, typed):
    assert post.run(*typed).exit_code == Status.USAGE


@pytest.mark.parametrize(
    "options",
    [
        ("list", "--from=TOPICx"),
        ("list", "--from=TOPIC:1", "--from=TOPIC:7"),
        ("list", "--from=TOPIC:1@99"),
        ("replay", "--from=TOPICx"),
    ],
    ids=short,
)
def test_an_origin_that_is_nowhere_is_refused(post, options):
    """A misspelt one was 0 letters and status 0; where letters are from is named."""
    post.put()
    command, *named = (one.replace("TOPIC", post.topic) for one in options)
    ended = post.run(command, *named)
    assert ended.exit_code == Status.FAILED, ended.output
    last = ended.stderr.splitlines()[-1]
    origin = named[-1].removeprefix("--from=")
    said = f"no letter is from {origin}, and that does not exist; the letters are from "
    assert last == f"safeconsumer: {said}{post.topic}"
    assert post.back() == []


@pytest.mark.parametrize("command", ["list", "replay"])
def test_an_error_that_no_letter_has_is_named_with_those_that_letters_have(
    post, command
):
    """A misspelt one was 0 letters; that there are none any more is no failure."""
    post.put(error=KeyError("a"))
    post.put()
    ended = post.run(command, "--error=KeyErr", "--error=ValueError", "--since=1h")
    assert ended.exit_code == Status.DONE, ended.output
    *_, last = ended.stderr.splitlines()
    assert last == (
        "safeconsumer: no letter has the error KeyErr; the letters have "
        "builtins.KeyError, builtins.ValueError"
    )
    ended = post.run("list", "--error=KeyError", "--from", post.topic)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")


def test_an_origin_without_letters_is_no_mistake(post, kafka_topic):
    """Of a topic that exists, or one that letters are from and that is gone."""
    post.put(topic=f"{post.topic}-gone")
    for origin in (kafka_topic(partitions=1), f"{post.topic}:2", f"{post.topic}-gone"):
        ended = post.run("list", "--from", origin)
        assert ended.exit_code == Status.DONE, ended.output


@pytest.mark.any_broker
@pytest.mark.parametrize("command", ["list", "replay"])
def test_a_topic_that_does_not_exist(post, command):
    name = f"{post.dead}-missing"
    for _ in range(2):
        ended = post.run(command, topic=name)
        assert ended.exit_code == Status.FAILED, ended.output
        meant = f"topic does not exist: {name}; did you mean {post.dead}"
        assert meant in ended.stderr


def test_a_record_that_is_no_letter_is_listed(post):
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    headers = [("dead-letter-topic", b"t"), ("dead-letter-partition", b"x")]
    post.producer.send(post.dead, b"damaged", headers=headers).get(SECONDS)
    ended = post.run("list")
    _, one, two, count = ended.stdout.splitlines()
    assert one.endswith("the record has no header dead-letter-topic")
    assert two.endswith("header dead-letter-partition is missing or not a number")
    assert (ended.exit_code, count) == (0, "0 letters, 2 records that are no letters")
    last = post.run("list", "--limit=1").stdout.splitlines()[-1]
    assert last.startswith("0 letters, 1 record that is no letter;")


def test_what_others_wrote_does_not_steer_the_terminal(post):
    post.put(error=ValueError("\x1b[2J"), headers=[("\x1b[2J", b"\x1b[2J")])
    for ended in (post.run("list"), post.show(0)):
        assert (ended.exit_code, "\x1b" in ended.output) == (Status.DONE, False)


# ------------------------------------------------------------ show


def raised():
    try:
        int("no number")
    except ValueError as error:
        return error
    raise AssertionError


def test_show_tells_everything(post):
    post.put(b'{"a":\n\t1}', b"\xff\x00", raised(), headers=[("h", b"x"), ("h", b"")])
    ended = post.show(0)
    assert ended.exit_code == Status.DONE, ended.output
    said = ended.stdout
    assert f"from       {post.topic}:1@0\ntimestamp  2023-11-14 22:13:20Z" in said
    assert "group      billing\nattempts   3\nexception  builtins.ValueError" in said
    assert "message    invalid literal for int()" in said
    assert 'int("no number")' in said
    assert "headers    2\n  h        x\n  h        \n" in said
    assert "key        hex ff00\n" in said
    assert 'value\n    {"a":\n        1}' in said


def test_show_tells_a_tombstone_from_a_text(post):
    """A text is in quotes where it could be taken for null, for hex or for quoted text."""
    values = None, b"null", b"\xff", b"hex ff", b'"null"', b"plain"
    for value in values:
        post.put(value)
    found = [post.show(at).stdout.splitlines()[-1] for at in range(len(values))]
    assert [one.removeprefix("value      ") for one in found] == [
        "null",
        '"null"',
        "hex ff",
        '"hex ff"',
        r'"\"null\""',
        "plain",
    ]


def test_list_as_json(post):
    post.put(None, b"k", is_brief=True)
    (told,) = json.loads(post.run("list", "-o", "json").stdout)
    assert (told["from"], told["value"], told["key"], told["stack"]) == (
        f"{post.topic}:1@0",
        None,
        {"text": "k"},
        None,
    )
    assert told["headers"] == [{"name": "trace", "text": "1"}]


def test_show_of_nothing_and_of_no_letter(post):
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    foreign, nothing = post.show(0), post.show(1)
    assert (foreign.exit_code, nothing.exit_code) == (Status.FAILED, Status.FAILED)
    assert "why        the record has no header" in foreign.stdout
    assert "not ours" in foreign.stdout
    assert nothing.stderr == f"safeconsumer: there is no record at {post.dead}:0@1\n"


def test_a_letter_about_a_letter(post):
    """The last one counts; the first is the record that it is about."""
    inner = [
        ("trace", b"1"),
        ("dead-letter-topic", b"first"),
        ("dead-letter-partition", b"0"),
        ("dead-letter-offset", b"5"),
    ]
    post.put(headers=inner)
    (told,) = json.loads(post.run("list", "-o", "json").stdout)
    assert told["from"] == f"{post.topic}:1@0"
    assert [one["name"] for one in told["headers"]] == [name for name, _ in inner]


# ------------------------------------------------------------ replay


@pytest.mark.any_broker
def test_replay_gives_records_back_as_they_were(post):
    post.put(b"a", b"k", headers=[("x", b"1"), ("x", b""), ("y", b"\xff")])
    post.put(None, b"tombstone", headers=[])
    ended = post.run("replay")
    assert ended.exit_code == Status.DONE, ended.output
    assert ended.stdout == "2 sent back, 0 could not be\n"
    there = post.back()
    # With a new time: retention would delete an old record at once.
    assert all(one.timestamp > 1_700_000_000_000 for one in there)
    found = sorted((one.partition, one.key, one.value, one.headers) for one in there)
    name = "dead-letter-replayed-from"
    place = post.dead.encode() + b":0@"
    assert found[:1] == [
        (1, b"k", b"a", [("x", b"1"), ("x", b""), ("y", b"\xff"), (name, place + b"0")])
    ]
    assert found[1:] == [(1, b"tombstone", None, [(name, place + b"1")])]


@pytest.mark.any_broker
def test_a_run_goes_on_where_the_last_one_stopped(post):
    """By the group's offsets, which are a plain consumer's, and which Kafka's tools set."""
    post.put_several(3)
    assert post.run("replay", "--limit=2").stdout == "2 sent back, 0 could not be\n"
    assert post.committed() == 2
    ended = post.run("replay")
    assert ended.stderr == (
        f"safeconsumer: goes on after 2 records, where the group {post.group} stands; "
        "kafka-consumer-groups.sh --reset-offsets sets it back\n"
    )
    assert (ended.stdout, post.committed()) == ("1 sent back, 0 could not be\n", 3)
    assert sorted(one.value for one in post.back()) == [b"0", b"1", b"2"]
    post.commit(0)
    ended = post.run("replay", "--limit=1")
    assert (ended.stdout, ended.stderr) == ("1 sent back, 0 could not be\n", "")


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("options", "how", "left"),
    [([], "run it again to go on", 2), (["--since=1h"], "nothing was committed", 3)],
    ids=["plain", "filtered"],
)
def test_what_goes_on_after_an_interrupt(post, monkeypatch, options, how, left):
    post.put_several(3)
    send = Replay._post

    def interrupted(self, *sent):
        send(self, *sent)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Replay, "_post", interrupted)
    ended = post.run("replay", *options)
    assert ended.exit_code == Status.INTERRUPTED
    assert ended.stderr.endswith(f"safeconsumer: interrupted; {how}\n")
    monkeypatch.setattr(Replay, "_post", send)
    assert post.run("replay").stdout == f"{left} sent back, 0 could not be\n"


AGAIN = (
    "safeconsumer: commits nothing, as letters are selected: the next run sends them "
    "again\n"
)


@pytest.mark.any_broker
def test_a_run_with_filters_commits_nothing_and_says_so(post):
    """It begins where the group stands, and what it passes over stays for the others."""
    post.put(b"0", error=KeyError("a"))
    post.put(b"1")
    for n in range(2, 5):
        post.put(b"%d" % n, error=KeyError("a"))
    assert post.run("replay", "--limit=1").stdout[0] == "1"
    for _ in range(2):
        ended = post.run("replay", "--error=KeyError")
        assert (ended.exit_code, ended.stdout[0], post.committed()) == (0, "3", 1)
        assert ended.stderr.endswith(AGAIN)
    assert post.run("replay").stdout == "4 sent back, 0 could not be\n"
    assert post.committed() == 5
    assert post.run("replay", "--error=KeyError").stdout[0] == "0"
    sent = (0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4)
    assert sorted(map(replayed_from, post.back())) == [
        f"{post.dead}:0@{n}" for n in sent
    ]


def test_one_letter_by_its_name(post):
    """As ``list`` has it; each time that it is asked for, and no other run passes it."""
    post.put(b"0")
    post.put(b"1")
    for _ in range(2):
        ended = post.run("replay", topic=f"{post.dead}:0@1")
        assert (ended.exit_code, ended.stdout) == (0, "1 sent back, 0 could not be\n")
    assert [one.value for one in post.back()] == [b"1", b"1"]
    ended = post.run("replay", topic=f"{post.dead}:0@2")
    assert ended.exit_code == Status.FAILED
    assert f"there is no record at {post.dead}:0@2" in ended.stderr
    assert post.run("replay").stdout == "2 sent back, 0 could not be\n"


@pytest.mark.parametrize("one", ["--error=ValueError", "--since=2h", "--from=orders"])
def test_a_letter_by_its_name_is_not_filtered(post, one):
    """It was said not to be there, if it did not fit."""
    post.put(b"0")
    ended = post.run("replay", one, topic=f"{post.dead}:0@0")
    assert ended.exit_code == Status.USAGE
    assert "this is one letter: leave out" in ended.stderr
    assert post.back() == []


@pytest.mark.any_broker
def test_offsets_that_the_topic_does_not_have(post):
    """Whatever set them: a run begins at the first letter, as a plain consumer does."""
    post.put()
    post.commit(50)
    assert post.run("replay").stdout == "1 sent back, 0 could not be\n"
    assert post.committed() == 1


def test_a_dry_run_changes_nothing(post):
    """It says what would go where, and what would stay."""
    post.put()
    post.put(partition=7)
    post.put(headers=[("n", None)])
    for _ in range(2):
        ended = post.run("replay", "--dry-run")
        assert ended.exit_code == Status.FAILED
        assert ended.stdout.splitlines() == [
            f"{post.dead}:0@0  to  {post.topic}:1",
            f"{post.dead}:0@1  to  {post.topic}:by its key",
            "would send 2; 1 could not be",
        ]
    assert (post.back(), post.committed()) == ([], None)


def test_what_cannot_go_back_is_named_and_passed(post):
    """Status 8; all that can has gone, and it goes by its name once it can."""
    gone = f"{post.topic}-gone"
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    post.put(b"1", topic=gone)
    post.put(b"2")
    post.put(b"3", headers=[("n", None), ("m", b"")])
    post.put(b"4", topic=post.dead)
    post.put(b"5", topic="no name")
    post.put(b"6", topic="__safeconsumer_holds_ops")
    post.put(None, None)
    ended = post.run("replay")
    assert ended.exit_code == Status.FAILED
    assert ended.stdout == "1 sent back, 7 could not be\n"
    start = f"safeconsumer: left {post.dead}:0@"
    assert ended.stderr.splitlines() == [
        f"{start}0: not a letter: the record has no header dead-letter-topic",
        f"{start}1: its topic {gone} does not exist",
        f"{start}3: its headers n were null, which kafka-python cannot write",
        f"{start}4: its topic is this one",
        f"{start}5: its topic no name does not exist",
        f"{start}6: its topic __safeconsumer_holds_ops is internal",
        f"{start}7: its key and value are null, which kafka-python cannot write",
    ]
    assert post.run("replay").stdout == "0 sent back, 0 could not be\n"
    post.broker.create_topic(gone, 1)
    post.run("replay", topic=f"{post.dead}:0@1")
    assert [one.value for one in post.back(gone)] == [b"1"]
    assert [one.value for one in post.back()] == [b"2"]


def test_a_second_death_and_a_second_replay(post):
    """The header that says which letter it was does not pile up."""
    post.put()
    post.run("replay")
    (first,) = post.back()
    post.put(headers=first.headers)
    post.run("replay")
    _, second = sorted(post.back(), key=lambda one: one.offset)
    assert second.headers == [
        ("trace", b"1"),
        ("dead-letter-replayed-from", f"{post.dead}:0@1".encode()),
    ]


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (TopicAuthorizationFailedError("no"), Status.REFUSED, "the broker refuses"),
        (KafkaTimeoutError("late"), Status.UNREACHABLE, "no answer from the broker"),
        (MessageSizeTooLargeError("big"), Status.FAILED, "left"),
    ],
)
@pytest.mark.parametrize("is_answer", [True, False])
def test_a_producer_that_fails(post, error, status, said, is_answer):
    """At the second of three letters: the next run sends it, and what was behind it again."""
    post.put_several(3)

    def refuse(_, value):
        if value != b"1":
            return None
        if not is_answer:
            raise error
        return SimpleNamespace(get=Mock(side_effect=error))

    with meddled(refuse):
        ended = post.run("replay")
    assert (ended.exit_code, said in ended.stderr) == (status, True), ended.output
    # What cannot be handed over ends the run at once.
    sent = 2 if is_answer or status == Status.FAILED else 1
    assert ended.stdout.startswith(f"{sent} sent back, ")
    passed = 3 if status == Status.FAILED else 1
    assert post.committed() == passed
    assert post.run("replay").stdout == f"{3 - passed} sent back, 0 could not be\n"


@pytest.mark.parametrize("is_last", [True, False])
def test_ctrl_c_is_told_of_if_letters_were_kept_from_being_sent(post, is_last):
    """Not if all of them were on their way, and have arrived."""
    post.put_several(3)

    def press(_, value):
        if value == (b"2" if is_last else b"1"):
            signal.raise_signal(signal.SIGINT)

    with meddled(press):
        ended = post.run("replay")
    sent, status = (3, Status.DONE) if is_last else (2, Status.INTERRUPTED)
    assert (ended.exit_code, ended.stdout) == (
        status,
        f"{sent} sent back, 0 could not be\n",
    )
    assert post.committed() == sent


@pytest.mark.any_broker
def test_a_group_with_members_is_refused(post, make_consumer):
    """Before anything is sent: its members commit, too."""
    post.put()
    stays = {"session_timeout_ms": 30_000}
    consumer = make_consumer(KafkaConsumer, post.dead, group=post.group, **stays)
    wait_for(lambda: consumer.poll(10_000), "a record", 100)
    ended = post.run("replay")
    assert ended.exit_code == Status.USAGE, ended.output
    assert "has members" in ended.stderr
    assert post.back() == []


@pytest.mark.embedded_broker
def test_a_coordinator_that_does_not_answer_ends_it(post, kafka_broker, monkeypatch):
    """It had no end, and a job that replays hung."""
    post.put()
    monkeypatch.setattr(letters, "_ANSWER_MS", 300)
    with kafka_broker.hold("OffsetFetch"):
        ended = post.run("replay")
    assert ended.exit_code == Status.UNREACHABLE, ended.output
    assert post.back() == []


NAMES = st.sampled_from(
    [f"dead-letter-{one}" for one in ("topic", "partition", "offset", "null-value")]
    + ["dead-letter-timestamp", "dead-letter-attempts", "dead-letter-stack", "other"]
)
TEXTS = st.sampled_from([b"null", b'"null"', b"hex ff", b"\xff", b'"', b"\n", b""])
VALUES = st.none() | st.binary(max_size=8) | st.integers().map(lambda n: b"%d" % n)


def shown(value):
    """Return what ``show`` says of a record's value, and of a header's."""
    record = SimpleNamespace(
        topic="t",
        partition=0,
        offset=0,
        timestamp=0,
        key=None,
        value=value,
        headers=[("h", value)],
    )
    told = list(letters.lines(letter_of(record)))
    at = next(n for n, line in enumerate(told) if line.startswith("value"))
    return told[at:], told[told.index("headers    1") : at]


@given(one=VALUES | TEXTS, other=VALUES | TEXTS)
def test_what_differs_is_shown_so(one, other):
    for ours, theirs in zip(shown(one), shown(other), strict=True):
        assert (ours == theirs) is (one == other)


@given(
    headers=st.lists(st.tuples(NAMES | st.text(), VALUES)),
    value=st.none() | st.binary(),
    timestamp=st.integers(-(2**63), 2**63 - 1),
)
def test_any_record_can_be_shown(headers, value, timestamp):
    one = letter_of(
        SimpleNamespace(
            topic="t",
            partition=0,
            offset=0,
            timestamp=timestamp,
            key=None,
            value=value,
            headers=headers,
        )
    )
    assert bool(one.topic) <= (not one.why)
    assert len(letters.row(one)) == len(letters.HEAD)
    assert list(letters.lines(one))
    assert json.dumps(letters.document(one))
    letters.Wanted(errors=("E",), since=0.0).takes(one)


def test_what_is_sent_back_has_its_own_trace(post):
    """Or none: an instrumentor of producers adds nothing."""
    from opentelemetry.instrumentation.kafka import (  # noqa: PLC0415 - of the extra ci
        KafkaInstrumentor,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise

    sent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    post.put(headers=[("traceparent", sent)])
    post.put(headers=[])
    instrumentor = KafkaInstrumentor()
    instrumentor.instrument(tracer_provider=TracerProvider())
    try:
        ended = post.run("replay")
    finally:
        instrumentor.uninstrument()
    assert ended.exit_code == Status.DONE, ended.output
    found = [
        [value for name, value in record.headers if name == "traceparent"]
        for record in post.back()
    ]
    assert sorted(found) == [[], [sent]]


# ---------------------------------------------------------------- a run that dies


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("options", "committed"), [([], 100), (["--error=ValueError"], None)], ids=short
)
def test_a_replay_that_is_killed_in_the_middle_of_a_window(post, options, committed):
    """The next run sends the window again: nothing is lost, and the header tells of it."""
    post.put_several(104)

    class Killed(BaseException):
        pass

    def die(producer, value):
        if value == b"102":
            producer.flush(SECONDS)
            raise Killed

    with meddled(die), pytest.raises(Killed):
        post.run("replay", *options)
    assert post.committed() == committed
    begin = committed or 0
    ended = post.run("replay")
    assert ended.stdout == f"{104 - begin} sent back, 0 could not be\n", ended.output
    twice = Counter(map(replayed_from, post.back()))
    sent = (*range(102), *range(begin, 104))
    assert twice == Counter(f"{post.dead}:0@{n}" for n in sent)
