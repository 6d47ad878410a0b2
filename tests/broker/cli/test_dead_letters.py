"""``safeconsumer dead-letters``: what it lists and shows, and what it sends back."""

import contextlib
import json
import random
import re
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    TopicAuthorizationFailedError,
)
from kafka.structs import OffsetAndMetadata
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from safeconsumer.cli import letters
from safeconsumer.cli.errors import CommandError, Status
from safeconsumer.cli.replay_memory import Memory
from safeconsumer.cli.replaying import Replay
from tests.broker.cli.letters import SECONDS, Post, meddled
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices


# ------------------------------------------------------------ list


def test_list_is_a_table(post: Post) -> None:
    """When, from where, which error, attempts, group and the message, cut."""
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
    assert post.run("list", "--limit=1").stdout.splitlines()[-1] == "1 letter"


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--error=ValueError",), [1, 2]),
        (("--error=builtins.KeyError", "--error=ValueError"), [0, 1, 2]),
        (("--error=Error",), []),
        (("--from=TOPIC",), [0, 1, 2]),
        (("--from=TOPIC:1",), [0, 1]),
        (("--from=TOPIC:2@2",), [2]),
        (("--from=other",), []),
        (("--partition=0", "--offset=1"), [1]),
        (("--partition=1",), []),
        (("--limit=2",), [0, 1]),
        (("--since=1h",), [0, 1, 2, 3]),
        (("--until=1h",), []),
        (("--since=2020-01-01", "--until=2020-01-02T00:00:00+02:00"), []),
        ((), [0, 1, 2, 3]),
    ],
)
def test_filters(post: Post, options: tuple[str, ...], offsets: list[int]) -> None:
    """All of them must fit; of repeated ones any. What is no letter has no origin."""
    post.put(error=KeyError("a"))
    post.put()
    post.put(partition=2)
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    named = [one.replace("TOPIC", post.topic) for one in options]
    ended = post.run("list", "--json", *named)
    assert ended.exit_code == Status.DONE, ended.output
    found = [one["letter"] for one in json.loads(ended.stdout)]
    assert sorted(found) == [f"{post.dead}:0@{n}" for n in offsets]


def test_a_name_that_no_letter_has(post: Post) -> None:
    """A filter with a mistyped name finds nothing, and says what there is."""
    post.put(error=KeyError("a"))
    post.put()
    post.put()
    there = "builtins.ValueError (2), builtins.KeyError (1)"
    error = f"safeconsumer: none of 3 letters has the error Valu; there are: {there}\n"
    ended = post.run("list", "--error=Valu", "--error=KeyError")
    assert ended.stderr == error
    assert ended.stdout.splitlines()[-1] == "1 letter"
    origin = f"none of 3 letters comes from order; there are: {post.topic} (3)"
    assert origin in post.run("replay", "--dry-run", "--from=order").stderr
    assert post.run("list", "--error=Valu", "--limit=1").stderr == error
    assert post.run("list", "--error=Key", "--error=KeyError", "--limit=1").stderr == ""


@pytest.mark.parametrize(
    ("command", "options", "status"),
    [
        ("list", ("--since=yesterday",), Status.USAGE),
        ("replay", ("--rate=fast",), Status.USAGE),
        ("replay", ("--rate=0/s",), Status.USAGE),
        ("show", (), Status.USAGE),
    ],
)
def test_wrong_usage(
    post: Post, command: str, options: tuple[str, ...], status: Status
) -> None:
    """Status 2."""
    assert post.run(command, *options).exit_code == status


@pytest.mark.any_broker
@pytest.mark.parametrize("command", ["list", "replay"])
def test_a_topic_that_does_not_exist(post: Post, command: str) -> None:
    """Status 7, and it is not made."""
    name = f"{post.dead}-missing"
    for _ in range(2):
        ended = post.run(command, topic=name)
        assert ended.exit_code == Status.MISSING, ended.output
        assert f"topic does not exist: {name};" in ended.stderr


def test_a_record_that_is_no_letter_is_listed(post: Post) -> None:
    """With what it lacks."""
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    headers = [("dead-letter-topic", b"t"), ("dead-letter-partition", b"x")]
    post.producer.send(post.dead, b"damaged", headers=headers).get(SECONDS)
    ended = post.run("list")
    _, one, two, count = ended.stdout.splitlines()
    assert one.endswith("the record has no header dead-letter-topic")
    assert two.endswith("header dead-letter-partition is missing or not a number")
    assert (ended.exit_code, count) == (0, "0 letters, 2 records that are no letters")


def test_what_others_wrote_does_not_steer_the_terminal(post: Post) -> None:
    """Neither by an error's message nor by a header."""
    post.put(error=ValueError("\x1b[2J"), headers=[("\x1b[2J", b"\x1b[2J")])
    for ended in (post.run("list"), post.show(0)):
        assert (ended.exit_code, "\x1b" in ended.output) == (Status.DONE, False)


# ------------------------------------------------------------ show


def raised() -> Exception:
    try:
        int("no number")
    except ValueError as error:
        return error
    raise AssertionError


def test_show_tells_everything(post: Post) -> None:
    """Text as text, the rest in hex, with sizes."""
    post.put(b'{"a":\n\t1}', b"\xff\x00", raised(), headers=[("h", b"x"), ("h", b"")])
    ended = post.show(0)
    assert ended.exit_code == Status.DONE, ended.output
    said = ended.stdout
    assert f"from       {post.topic}:1@0, written 2023-11-14 22:13:20Z" in said
    assert "group      billing\nattempts   3\nerror      builtins.ValueError" in said
    assert "message\n  invalid literal for int()" in said
    assert 'int("no number")' in said
    assert "headers    2\n  h\n    x\n  h\n" in said
    assert "key        2 bytes\n  000000  ff 00" in said
    assert 'value      9 bytes\n  {"a":\n      1}' in said


def test_show_as_json(post: Post) -> None:
    """The same for a machine."""
    post.put(None, b"k", is_brief=True)
    told = json.loads(post.show(0, "--json").stdout)
    assert (told["from"], told["value"], told["key"], told["stack"]) == (
        f"{post.topic}:1@0",
        None,
        {"text": "k"},
        None,
    )
    assert told["headers"] == [{"name": "trace", "text": "1"}]


def test_show_of_nothing_and_of_no_letter(post: Post) -> None:
    """Status 1, and what there is."""
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    foreign, nothing = post.show(0), post.show(1)
    assert (foreign.exit_code, nothing.exit_code) == (Status.FAILED, Status.FAILED)
    assert "no letter  the record has no header" in foreign.stdout
    assert "not ours" in foreign.stdout
    assert nothing.stderr == f"safeconsumer: there is no record at {post.dead}:0@1\n"


def test_a_letter_about_a_letter(post: Post) -> None:
    """The last one counts; the first is the record that it is about."""
    inner = [
        ("trace", b"1"),
        ("dead-letter-topic", b"first"),
        ("dead-letter-partition", b"0"),
        ("dead-letter-offset", b"5"),
    ]
    post.put(headers=inner)
    told = json.loads(post.show(0, "--json").stdout)
    assert told["from"] == f"{post.topic}:1@0"
    assert [one["name"] for one in told["headers"]] == [name for name, _ in inner]


# ------------------------------------------------------------ replay


@pytest.mark.any_broker
def test_replay_gives_records_back_as_they_were(post: Post) -> None:
    """Key, value and headers, in their partition, and which letter each was."""
    post.put(b"a", b"k", headers=[("x", b"1"), ("x", b""), ("y", b"\xff")])
    post.put(None, b"tombstone", headers=[])
    post.put(None, None, headers=[], partition=2)
    ended = post.run("replay")
    assert ended.exit_code == Status.DONE, ended.output
    assert ended.stdout == "3 sent back, 0 left; 0 sent before\n"
    found = sorted(
        (one.partition, one.key, one.value, one.headers) for one in post.back()
    )
    name = "dead-letter-replayed-from"
    place = post.dead.encode() + b":0@"
    assert found[:1] == [
        (1, b"k", b"a", [("x", b"1"), ("x", b""), ("y", b"\xff"), (name, place + b"0")])
    ]
    assert found[1:] == [
        (1, b"tombstone", None, [(name, place + b"1")]),
        (2, None, None, [(name, place + b"2")]),
    ]


@pytest.mark.any_broker
def test_a_letter_is_sent_back_once(post: Post) -> None:
    """By every later run, filtered or not; unless it is asked for."""
    post.put(b"0", error=KeyError("a"))
    post.put(b"1")
    post.put(b"2", error=KeyError("a"))
    assert "2 sent back, 0 left; 0" in post.run("replay", "--error=KeyError").stdout
    assert "1 sent back, 0 left; 2" in post.run("replay").stdout
    post.put(b"3")
    assert "1 sent back, 0 left; 3" in post.run("replay", "--limit=1").stdout
    assert sorted(one.value for one in post.back()) == [b"0", b"1", b"2", b"3"]
    again = post.run("replay", "--again", "--offset=1")
    assert again.stdout == "1 sent back, 0 left; 0 sent before\n"
    assert sorted(one.value for one in post.back()) == [b"0", b"1", b"1", b"2", b"3"]


def test_a_dry_run_changes_nothing(post: Post) -> None:
    """It says what would go where, and what would stay."""
    post.put()
    post.put(partition=7)
    post.put(headers=[("n", None)])
    for _ in range(2):
        ended = post.run("replay", "--dry-run")
        assert ended.exit_code == Status.LEFT
        assert ended.stdout.splitlines() == [
            f"{post.dead}:0@0  to  {post.topic}:1",
            f"{post.dead}:0@1  to  {post.topic}:by its key",
            "would send 2, leave 1; 0 sent before",
        ]
    assert post.back() == []


def test_what_cannot_go_back_stays_and_is_named(post: Post) -> None:
    """Status 8; it goes back once it can, and all that could has gone."""
    gone = f"{post.topic}-gone"
    post.producer.send(post.dead, b"not ours").get(SECONDS)
    post.put(b"1", topic=gone)
    post.put(b"2")
    post.put(b"3", headers=[("n", None), ("m", b"")])
    post.put(b"4", topic=post.dead)
    post.put(b"5", topic="no name")
    post.put(b"6", topic="__safeconsumer_holds_ops")
    ended = post.run("replay")
    assert ended.exit_code == Status.LEFT
    assert ended.stdout == "1 sent back, 6 left; 0 sent before\n"
    start = f"safeconsumer: left {post.dead}:0@"
    assert ended.stderr.splitlines() == [
        f"{start}0: not a letter: the record has no header dead-letter-topic",
        f"{start}1: its topic {gone} does not exist",
        f"{start}3: its headers n were null, which kafka-python cannot write",
        f"{start}4: its topic is this one",
        f"{start}5: its topic no name does not exist",
        f"{start}6: its topic __safeconsumer_holds_ops is internal",
    ]
    post.broker.create_topic(gone, 1)
    assert "1 sent back, 5 left; 1 sent before" in post.run("replay").stdout
    assert [one.value for one in post.back(gone)] == [b"1"]
    assert [one.value for one in post.back()] == [b"2"]


def test_a_second_death_and_a_second_replay(post: Post) -> None:
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


@pytest.mark.any_broker
def test_the_time_is_new_unless_asked(post: Post) -> None:
    """Retention would delete an old record at once."""
    post.put(b"old")
    post.run("replay")
    (new,) = post.back()
    post.run("replay", "--again", "--keep-timestamp")
    (_, old) = sorted(post.back(), key=lambda one: one.offset)
    assert (new.timestamp > 1_700_000_000_000, old.timestamp) == (
        True,
        1_700_000_000_000,
    )


@pytest.mark.any_broker
def test_a_group_of_somebody_elses_is_refused(
    post: Post, make_consumer: Callable[..., Any]
) -> None:
    """Its offsets mean something else."""
    post.put()
    group = f"g-{post.dead}"
    consumer = make_consumer(KafkaConsumer, post.dead, group=group)
    wait_for(lambda: consumer.poll(10_000), "a record", 100)
    consumer.commit()
    ended = post.run("replay", f"--memory={group}")
    assert ended.exit_code == Status.USAGE, ended.output
    assert "was not written by a replay" in ended.stderr
    assert post.back() == []


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (TopicAuthorizationFailedError("no"), Status.REFUSED, "the broker refuses"),
        (KafkaTimeoutError("late"), Status.UNREACHABLE, "no answer from the broker"),
        (MessageSizeTooLargeError("big"), Status.LEFT, "left"),
    ],
)
def test_a_producer_that_fails(
    post: Post, error: KafkaError, status: Status, said: str
) -> None:
    """At the second of three letters: the others are sent, and it is by the next run."""
    for n in range(3):
        post.put(b"%d" % n)
    fails = SimpleNamespace(get=Mock(side_effect=error))
    with meddled(lambda _, value: fails if value == b"1" else None):
        ended = post.run("replay")
    assert (ended.exit_code, said in ended.stderr) == (status, True), ended.output
    assert ended.stdout.startswith("2 sent back, ")
    assert post.run("replay").stdout == "1 sent back, 0 left; 2 sent before\n"
    assert sorted(one.value for one in post.back()) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("is_last", [True, False])
def test_ctrl_c_is_told_of_if_letters_were_kept_from_being_sent(
    post: Post,
    is_last: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Not if all of them were on their way, and have arrived."""
    for n in range(3):
        post.put(b"%d" % n)

    def press(_: object, value: bytes) -> None:
        if value == (b"2" if is_last else b"1"):
            signal.raise_signal(signal.SIGINT)

    with meddled(press):
        ended = post.run("replay")
    sent, status = (3, Status.DONE) if is_last else (2, Status.INTERRUPTED)
    assert (ended.exit_code, ended.stdout) == (
        status,
        f"{sent} sent back, 0 left; 0 sent before\n",
    )
    assert post.run("replay").stdout.endswith(f"; {sent} sent before\n")


@pytest.mark.any_broker
def test_a_group_with_members_is_refused(
    post: Post, make_consumer: Callable[..., Any]
) -> None:
    """Before anything is sent: its members commit, too."""
    post.put()
    stays = {"session_timeout_ms": 30_000}
    consumer = make_consumer(KafkaConsumer, post.dead, group=post.memory, **stays)
    wait_for(lambda: consumer.poll(10_000), "a record", 100)
    ended = post.run("replay")
    assert ended.exit_code == Status.USAGE, ended.output
    assert "has members" in ended.stderr
    assert post.back() == []


NAMES = st.sampled_from(
    [f"dead-letter-{one}" for one in ("topic", "partition", "offset", "null-value")]
    + ["dead-letter-timestamp", "dead-letter-attempts", "dead-letter-stack", "other"]
)
VALUES = st.none() | st.binary(max_size=8) | st.integers().map(lambda n: b"%d" % n)


@given(
    headers=st.lists(st.tuples(NAMES | st.text(), VALUES)),
    value=st.none() | st.binary(),
    timestamp=st.integers(-(2**63), 2**63 - 1),
)
def test_any_record_can_be_shown(
    headers: list[tuple[str, bytes | None]], value: bytes | None, timestamp: int
) -> None:
    """Whoever wrote it."""
    one = letters.found(
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
    assert (one.letter is None) == bool(one.why)
    assert len(letters.rows([one])) == 2
    assert list(letters.lines(one))
    assert json.dumps(letters.document(one))
    letters.Wanted(errors=("E",), since=0.0).takes(one)


# ------------------------------------------------------------ what remembers


class Group:
    """Keeps offsets as a broker does."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    def committed(self, tp: TopicPartition, *, metadata: bool) -> Any:  # noqa: ANN401 - as upstream
        assert metadata
        return self.offsets.get(tp)

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        assert all(len(one.metadata) <= 4096 for one in offsets.values())
        self.offsets.update(offsets)


TP = TopicPartition("orders.dlq", 0)


@given(
    begin=st.integers(0, 50),
    windows=st.lists(st.lists(st.tuples(st.integers(0, 200), st.booleans()))),
    later=st.integers(0, 100),
)
def test_memory_knows_what_was_sent(
    begin: int, windows: list[list[tuple[int, bool]]], later: int
) -> None:
    """Exactly, whatever was sent in which order, and after each start anew."""
    group, sent = Group(), set()
    for window in windows:
        memory = Memory(group, {TP: begin})
        offsets = {begin + n: is_sent for n, is_sent in window}
        memory.begin((TP, one) for one in offsets)
        killed = Memory(group, {TP: begin})
        for one in offsets:
            is_doubtful = killed.doubtful_since(TP, one) is not None
            assert killed.has(TP, one) or is_doubtful
        arrived = {one for one, is_sent in offsets.items() if is_sent}
        memory.end(
            ((TP, n) for n in arrived), ((TP, n) for n in offsets.keys() - arrived)
        )
        sent |= arrived
    begin += later
    memory = Memory(group, {TP: begin})
    for one in range(begin, begin + 260):
        assert memory.has(TP, one) == (one in sent)
        assert memory.doubtful_since(TP, one) is None


def _letter(offset: int) -> letters.Found:
    headers = {"topic": b"orders", "partition": b"0", "offset": b"0"}
    record = SimpleNamespace(
        topic=TP.topic,
        partition=TP.partition,
        offset=offset,
        timestamp=0,
        key=b"k",
        value=b"v",
        headers=[(f"dead-letter-{name}", value) for name, value in headers.items()],
    )
    return letters.found(record)


class Outbox:
    """A producer whose records arrive, before it dies."""

    config: ClassVar[dict[str, Any]] = {"value_serializer": None}

    def __init__(self, *, dies: bool) -> None:
        self.dies = dies
        self.sent: list[str] = []

    def send(self, topic: str, **_record: Any) -> Any:  # noqa: ANN401 - a future
        """Send a record."""
        self.sent.append(topic)
        if self.dies:
            raise KeyboardInterrupt
        return SimpleNamespace(get=lambda timeout: timeout)


def test_what_was_found_to_have_arrived_is_remembered() -> None:
    """Once, as the topic may have let go of it when a later run looks."""
    group = Group()

    def run(*, dies: bool = False, arrived: bool = False, **how: Any) -> list[int]:  # noqa: ANN401 - of a replay
        outbox = Outbox(dies=dies)
        replaying = Replay(
            outbox,
            Memory(group, {TP: 0}),
            lambda _topic: frozenset({0}),
            lambda _letter, _place, _since: arrived,
            lambda _line: None,
            **how,
        )
        with contextlib.suppress(KeyboardInterrupt):
            replaying.run([_letter(0), _letter(1)])
        return [len(outbox.sent), replaying.counts.before]

    assert run(dies=True, most=1) == [1, 0]
    assert run(arrived=True) == [1, 1]
    assert run() == [0, 2]


def test_a_second_replay_is_noticed() -> None:
    """By the one that writes later."""
    group = Group()
    first, second = Memory(group, {TP: 0}), Memory(group, {TP: 0})
    first.begin([(TP, 1)])
    with pytest.raises(CommandError, match="another replay"):
        second.begin([(TP, 1)])
    first.end([(TP, 1)], ())


def test_memory_of_a_long_topic_is_short() -> None:
    """A record that is no letter stands at the beginning for ever."""
    group = Group()
    memory = Memory(group, {TP: 0})
    memory.end(((TP, n) for n in range(1, 300_000)), ())
    memory.begin([(TP, 300_000)])
    assert group.offsets[TP].offset == 0
    again = Memory(group, {TP: 0})
    assert (again.has(TP, 0), again.has(TP, 299_999)) == (False, True)
    assert again.doubtful_since(TP, 300_000) is not None


def test_memory_that_is_full_refuses_before_anything_is_sent() -> None:
    """Rather than forget."""
    group = Group()
    memory = Memory(group, {TP: 0})
    chance = random.Random(7)  # noqa: S311 - a test
    some = [(TP, n) for n in range(1, 60_000) if chance.random() < 0.5]
    with pytest.raises(CommandError, match="too many single letters"):
        memory.begin(some)
    assert group.offsets == {}


def test_what_is_sent_back_has_its_own_trace(post: Post) -> None:
    """Or none: an instrumentor of producers adds nothing."""
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
