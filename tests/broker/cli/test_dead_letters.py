"""Tests ``safeconsumer dead-letters``, which lists, shows and replays dead letters."""

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
from safeconsumer.worker import DeadLetter, Failure
from safeconsumer.worker.dead_letters import sink_of
from safeconsumer.worker.letters_format import letter_of
from tests.harness.listing import short
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices

SECONDS = 30


class DeadLetterTopic:
    """A topic with dead letters as a worker would write them, and their original topic."""

    def __init__(self, broker, origin, name, producer, make_consumer):
        self.broker, self.origin, self.name = broker, origin, name
        self.producer = producer
        self._make_consumer = make_consumer
        self._offsets = itertools.count()
        self.group = f"safeconsumer-replay-{name}"

    def put(self, value=b"v", key=b"k", error=None, *, is_brief=False, **record):
        """Write one letter."""
        fields = {
            "topic": self.origin,
            "partition": 1,
            "offset": next(self._offsets),
            "timestamp": 1_700_000_000_000,
            "headers": [("trace", b"1")],
            **record,
        }
        error = error or ValueError("planted")
        failure = Failure(error=error, attempts=3, is_brief=is_brief)
        send = sink_of(DeadLetter(self.producer, self.name), "billing")
        send(SimpleNamespace(key=key, value=value, **fields), failure).get(SECONDS)

    def put_several(self, count):
        """Write this many letters, numbered by their values."""
        for number in range(count):
            self.put(b"%d" % number)

    def put_foreign(self, value=b"not ours", **more):
        """Write a record that is not a dead letter."""
        self.producer.send(self.name, value, **more).get(SECONDS)

    def run(self, command, *options, topic=None):
        """Run a command on this topic; in options, TOPIC stands for the original topic."""
        options = [one.replace("TOPIC", self.origin) for one in options]
        arguments = ["dead-letters", command, topic or self.name, *options]
        where = ["--bootstrap", self.broker.bootstrap]
        return CliRunner().invoke(safeconsumer, [*arguments, *where])

    def replay(self, *options):
        """Replay letters without a failure; return the number of letters sent back."""
        ended = self.run("replay", *options)
        assert ended.exit_code == Status.DONE, ended.output
        found = re.fullmatch(r"(\d+) sent back, 0 could not be\n", ended.stdout)
        return int(found[1])

    def listed(self, *options):
        """Return the JSON documents that ``dead-letters list`` prints."""
        ended = self.run("list", "-o", "json", *options)
        assert ended.exit_code == Status.DONE, ended.output
        return json.loads(ended.stdout)

    def show(self, offset):
        return self.run("show", topic=f"{self.name}:0@{offset}")

    def _consumer(self, **settings):
        return self._make_consumer(KafkaConsumer, **settings)

    def committed(self):
        """Return the offset that the replay's group has committed, or None."""
        return self._consumer(group=self.group).committed(TopicPartition(self.name, 0))

    def commit(self, offset):
        """Set the committed offset of the replay's group, as Kafka's own tools would."""
        consumer, tp = self._consumer(group=self.group), TopicPartition(self.name, 0)
        consumer.assign([tp])
        consumer.commit({tp: OffsetAndMetadata(offset, "", -1)})

    def returned(self, topic=None):
        """Return all records in a topic, by default in the original topic."""
        name, consumer = topic or self.origin, self._consumer()
        tps = [TopicPartition(name, n) for n in consumer.partitions_for_topic(name)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(200).values():
                found += records
        return found

    def replayed(self):
        """Count the replayed records, by the letter that each record's header names."""
        headers = (dict(one.headers) for one in self.returned())
        return Counter(one["dead-letter-replayed-from"].decode() for one in headers)


@contextmanager
def before_each_send(act):
    """
    Call ``act`` with the producer and the value before a replay sends a letter.

    If ``act`` returns None, the replay sends the letter. Otherwise the letter is not
    sent, and the returned object takes the place of the future.
    """
    real = dead_letters.producer_of

    def producer_of(base):
        producer = real(base)
        send = producer.send
        producer.send = lambda *args, **kwargs: (
            act(producer, kwargs["value"]) or send(*args, **kwargs)
        )
        return producer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "producer_of", producer_of)
        yield


@pytest.fixture
def topic(kafka_broker, kafka_topic, make_producer, make_consumer):
    names = kafka_topic(partitions=3), kafka_topic(partitions=1)
    return DeadLetterTopic(kafka_broker, *names, make_producer(), make_consumer)


# ------------------------------------------------------------ list


def test_list_prints_a_table_with_one_line_per_letter(topic):
    topic.put(error=KeyError("x" * 200))
    topic.put(error=ValueError("first\nsecond"))
    ended = topic.run("list")
    assert ended.exit_code == Status.DONE, ended.output
    head, one, two, count = ended.stdout.splitlines()
    names = "letter written from error attempts group message"
    assert (head.split(), count) == (names.split(), "2 letters")
    start = rf"{topic.name}:0@0 +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ +{topic.origin}:1@0"
    assert re.match(rf"{start} +builtins.KeyError +3 +billing +'x+\.\.\.$", one), one
    assert "first..." in two


def test_list_stops_at_its_limit_of_matching_letters(topic):
    topic.put(error=KeyError("a"))
    topic.put_several(3)
    ended = topic.run("list", "--limit=2", "--error=ValueError")
    _, one, two, count = ended.stdout.splitlines()
    assert [line.split()[0][-3:] for line in (one, two)] == ["0@1", "0@2"]
    assert count == "2 letters; there may be more than --limit"
    first = [one["letter"] for one in topic.listed("--limit=1")]
    assert first == [f"{topic.name}:0@0"]
    assert topic.listed("--error=E") == []


@pytest.mark.parametrize("form", ["table", "json"])
def test_list_does_not_keep_printed_letters_in_memory(topic, monkeypatch, form):
    monkeypatch.setattr(letters, "_POLL_RECORDS", 10)
    topic.put_several(200)
    made, most = [], 0

    def noted(record):
        nonlocal most
        one = letter_of(record)
        made.append(weakref.ref(one))
        most = max(most, sum(letter() is not None for letter in made))
        return one

    monkeypatch.setattr(letters, "letter_of", noted)
    ended = topic.run("list", "-o", form)
    assert ended.exit_code == Status.DONE, ended.output
    assert ended.stdout.count(f"{topic.name}:0@") == 200
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
    ids=short,
)
def test_list_filters_select_letters(topic, options, offsets):
    """A letter must match all kinds of options, and any value of a repeated option."""
    topic.put(error=KeyError("a"))
    topic.put()
    topic.put(partition=2)
    topic.put_foreign()
    found = sorted(one["letter"] for one in topic.listed(*options))
    assert found == [f"{topic.name}:0@{n}" for n in offsets]


@pytest.mark.parametrize(
    ("typed", "place", "reason"),
    [
        (("list", "--since=yesterday"), "", "is not a time"),
        (("show",), "", "is not TOPIC:PARTITION@OFFSET"),
        (("replay", "--error=ValueError"), ":0@0", "this is one letter: leave out"),
        (("replay", "--since=2h"), ":0@0", "this is one letter: leave out"),
        (("replay", "--from=orders"), ":0@0", "this is one letter: leave out"),
    ],
    ids=short,
)
def test_wrong_usage_has_status_2_and_the_reason(topic, typed, place, reason):
    topic.put()
    ended = topic.run(*typed, topic=topic.name + place)
    assert ended.exit_code == Status.USAGE
    assert reason in ended.stderr
    assert topic.returned() == []


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
def test_missing_origin_is_refused_with_a_list_of_the_letters_origins(topic, options):
    topic.put()
    ended = topic.run(*options)
    origin = options[-1].removeprefix("--from=").replace("TOPIC", topic.origin)
    text = f"{origin} does not exist, and no letter is from it; the letters are from "
    last = ended.stderr.splitlines()[-1]
    assert ended.exit_code == Status.FAILED, ended.output
    assert last == f"safeconsumer: {text}{topic.origin}"
    assert topic.returned() == []


def test_origin_that_exists_or_has_dead_letters_is_accepted(topic, kafka_topic):
    gone = f"{topic.origin}-gone"
    topic.put(topic=gone)
    for origin in (kafka_topic(partitions=1), f"{topic.origin}:2", gone):
        assert topic.run("list", "--from", origin).exit_code == Status.DONE


def test_origin_offset_is_refused_only_at_or_beyond_the_end_of_the_log(topic):
    topic.put()
    for _ in range(3):
        topic.producer.send(topic.origin, b"v", partition=2).get(SECONDS)
    for offset, status in ((0, Status.DONE), (2, Status.DONE), (3, Status.FAILED)):
        assert topic.run("list", f"--from=TOPIC:2@{offset}").exit_code == status
    wrong = topic.run("list", "--from=TOPIC:2@1", "--from=TOPIC:2@x").stderr
    assert f"{topic.origin}:2@x" in wrong
    assert f"{topic.origin}:2@1" not in wrong


def test_replay_with_a_filter_ignores_letters_before_its_start_offset(topic):
    gone = f"{topic.origin}-gone"
    topic.put(topic=gone, error=KeyError("a"))
    assert topic.run("replay").exit_code == Status.FAILED  # no original topic
    topic.put()
    for option, text in (
        (
            "--error=KeyError",
            "no letter has the error KeyError; the letters have builtins.ValueError",
        ),
        (
            f"--from={gone}",
            f"no letter is from {gone}; the letters are from {topic.origin}",
        ),
    ):
        ended = topic.run("replay", option, "--dry-run")
        assert ended.exit_code == Status.DONE, ended.output
        assert ended.stderr.splitlines()[-1] == f"safeconsumer: from here on {text}"


@pytest.mark.parametrize("command", ["list", "replay"])
def test_unmatched_error_is_named_with_a_list_of_the_letters_errors(topic, command):
    topic.put(error=KeyError("a"))
    topic.put()
    ended = topic.run(command, "--error=KeyErr", "--error=ValueError", "--since=1h")
    assert ended.exit_code == Status.DONE, ended.output
    assert ended.stderr.splitlines()[-1] == (
        "safeconsumer: no letter has the error KeyErr; the letters have "
        "builtins.KeyError, builtins.ValueError"
    )
    ended = topic.run("list", "--error=KeyError", "--from=TOPIC")
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")


@pytest.mark.any_broker
@pytest.mark.parametrize("command", ["list", "replay"])
def test_missing_topic_is_reported_with_the_most_similar_name_and_not_created(
    topic, command
):
    name = f"{topic.name}-missing"
    for _ in range(2):
        ended = topic.run(command, topic=name)
        assert ended.exit_code == Status.FAILED, ended.output
        meant = f"topic does not exist: {name}; did you mean {topic.name}"
        assert meant in ended.stderr


def test_record_that_is_not_a_dead_letter_is_listed_with_the_reason(topic):
    topic.put_foreign()
    headers = [("dead-letter-topic", b"t"), ("dead-letter-partition", b"x")]
    topic.put_foreign(b"damaged", headers=headers)
    ended = topic.run("list")
    _, one, two, count = ended.stdout.splitlines()
    assert one.endswith("the record has no header dead-letter-topic")
    assert two.endswith("header dead-letter-partition is missing or not a number")
    assert (ended.exit_code, count) == (0, "0 letters, 2 records that are no letters")
    last = topic.run("list", "--limit=1").stdout.splitlines()[-1]
    assert last.startswith("0 letters, 1 record that is no letter;")


def test_escape_sequences_of_letters_do_not_reach_the_terminal(topic):
    topic.put(error=ValueError("\x1b[2J"), headers=[("\x1b[2J", b"\x1b[2J")])
    for ended in (topic.run("list"), topic.show(0)):
        assert (ended.exit_code, "\x1b" in ended.output) == (Status.DONE, False)


# ------------------------------------------------------------ show


def raised():
    try:
        int("no number")
    except ValueError as error:
        return error
    raise AssertionError


def test_show_prints_a_letter_with_its_stack_headers_key_and_value(topic):
    topic.put(b'{"a":\n\t1}', b"\xff\x00", raised(), headers=[("h", b"x"), ("h", b"")])
    ended = topic.show(0)
    assert ended.exit_code == Status.DONE, ended.output
    text = ended.stdout
    assert f"from       {topic.origin}:1@0\ntimestamp  2023-11-14 22:13:20Z" in text
    assert "group      billing\nattempts   3\nexception  builtins.ValueError" in text
    assert "message    invalid literal for int()" in text
    assert 'int("no number")' in text
    assert "headers    2\n  h        x\n  h        \n" in text
    assert "key        hex ff00\n" in text
    assert 'value\n    {"a":\n        1}' in text


def test_show_of_a_foreign_or_missing_record_fails(topic):
    topic.put_foreign()
    foreign, nothing = topic.show(0), topic.show(1)
    assert (foreign.exit_code, nothing.exit_code) == (Status.FAILED, Status.FAILED)
    assert "why        the record has no header" in foreign.stdout
    assert "not ours" in foreign.stdout
    assert nothing.stderr == f"safeconsumer: there is no record at {topic.name}:0@1\n"


def test_dead_letter_made_from_a_dead_letter_names_its_last_origin_and_keeps_all_headers(
    topic,
):
    inner = [
        ("trace", b"1"),
        ("dead-letter-topic", b"first"),
        ("dead-letter-partition", b"0"),
        ("dead-letter-offset", b"5"),
    ]
    topic.put(None, headers=inner, is_brief=True)
    (found,) = topic.listed()
    assert found["from"] == f"{topic.origin}:1@0"
    assert (found["value"], found["key"], found["stack"]) == (None, {"text": "k"}, None)
    assert found["headers"][0] == {"name": "trace", "text": "1"}
    assert [one["name"] for one in found["headers"]] == [name for name, _ in inner]


def letter(value=None, headers=(), timestamp=0):
    fields = {"topic": "t", "partition": 0, "offset": 0, "key": None}
    return letter_of(
        SimpleNamespace(value=value, headers=headers, timestamp=timestamp, **fields)
    )


def shown(value):
    """Return the lines that ``show`` prints for a record's value and for a header."""
    lines = list(letters.lines(letter(value, [("h", value)])))
    at = next(n for n, line in enumerate(lines) if line.startswith("value"))
    return lines[at:], lines[lines.index("headers    1") : at]


def test_show_quotes_a_text_that_looks_like_null_or_hex():
    values = None, b"null", b"\xff", b"hex ff", b'"null"', b"plain"
    found = [shown(one)[0][0].removeprefix("value      ") for one in values]
    assert found == ["null", '"null"', "hex ff", '"hex ff"', r'"\"null\""', "plain"]


NAMES = st.sampled_from(
    [f"dead-letter-{one}" for one in ("topic", "partition", "offset", "null-value")]
    + ["dead-letter-timestamp", "dead-letter-attempts", "dead-letter-stack", "other"]
)
TEXTS = st.sampled_from([b"null", b'"null"', b"hex ff", b"\xff", b'"', b"\n", b""])
VALUES = st.none() | st.binary(max_size=8) | st.integers().map(lambda n: b"%d" % n)


@given(one=VALUES | TEXTS, other=VALUES | TEXTS)
def test_different_values_are_shown_differently(one, other):
    for ours, theirs in zip(shown(one), shown(other), strict=True):
        assert (ours == theirs) is (one == other)


@given(
    headers=st.lists(st.tuples(NAMES | st.text(), VALUES)),
    value=st.none() | st.binary(),
    timestamp=st.integers(-(2**63), 2**63 - 1),
)
def test_show_prints_any_record(headers, value, timestamp):
    one = letter(value, headers, timestamp)
    assert bool(one.topic) <= (not one.why)
    assert len(letters.row(one)) == len(letters.HEAD)
    assert list(letters.lines(one))
    assert json.dumps(letters.document(one))
    letters.Wanted(errors=("E",), since=0.0).takes(one)


# ------------------------------------------------------------ replay


@pytest.mark.any_broker
def test_replayed_record_differs_only_in_its_timestamp_and_one_header(topic):
    headers = [("x", b"1"), ("x", b""), ("y", b"\xff")]
    topic.put(b"a", b"k", headers=headers)
    topic.put(None, b"tombstone", headers=[])
    assert topic.replay() == 2
    returned = topic.returned()
    # Retention would immediately delete a record with an old timestamp.
    assert all(one.timestamp > 1_700_000_000_000 for one in returned)
    name, place = "dead-letter-replayed-from", topic.name.encode() + b":0@"
    found = sorted((one.partition, one.key, one.value, one.headers) for one in returned)
    assert found == [
        (1, b"k", b"a", [*headers, (name, place + b"0")]),
        (1, b"tombstone", None, [(name, place + b"1")]),
    ]


@pytest.mark.any_broker
def test_replay_continues_at_the_committed_offset_of_its_group(topic):
    topic.put_several(3)
    assert topic.replay("--limit=2") == 2
    assert topic.committed() == 2
    ended = topic.run("replay")
    assert ended.stderr == (
        "safeconsumer: continues after 2 records, at the offsets of the group "
        f"{topic.group}; "
        "kafka-consumer-groups.sh --reset-offsets sets it back\n"
    )
    assert ended.stdout == "1 sent back, 0 could not be\n"
    assert topic.committed() == 3
    assert sorted(one.value for one in topic.returned()) == [b"0", b"1", b"2"]
    topic.commit(0)
    ended = topic.run("replay", "--limit=1")
    assert (ended.stdout, ended.stderr) == ("1 sent back, 0 could not be\n", "")
    topic.commit(50)  # the topic does not have this offset
    assert topic.replay() == 3
    assert topic.committed() == 3


def test_replay_with_a_limit_and_a_filter_sends_the_same_letters_again(topic):
    """Without a filter, a second replay sends the letters that follow."""
    topic.put_several(3)
    for _ in range(2):
        topic.run("replay", "--error=ValueError", "--limit=1")
    assert [one.value for one in topic.returned()] == [b"0", b"0"]
    for _ in range(2):
        topic.run("replay", "--limit=1")
    assert [one.value for one in topic.returned()] == [b"0", b"0", b"0", b"1"]


@pytest.mark.parametrize("option", ["--from=TOPIC", "--error=E", "--since=1h"])
def test_replay_of_a_single_letter_is_refused_with_a_filter(topic, option):
    topic.put()
    ended = topic.run("replay", option, topic=f"{topic.name}:0@0")
    assert ended.exit_code == Status.USAGE
    assert "leave out --from, --error and --since" in ended.stderr
    ended = topic.run("replay", "--limit=1", topic=f"{topic.name}:0@0")
    assert (ended.exit_code, len(topic.returned())) == (Status.DONE, 1)


@pytest.mark.any_broker
def test_replay_with_filters_commits_nothing_and_reports_it(topic):
    """A filtered run starts at the group's offset; later runs replay the other letters."""
    topic.put(b"0", error=KeyError("a"))
    topic.put(b"1")
    for n in range(2, 5):
        topic.put(b"%d" % n, error=KeyError("a"))
    assert topic.replay("--limit=1") == 1
    for _ in range(2):
        ended = topic.run("replay", "--error=KeyError")
        assert (ended.exit_code, ended.stdout[0], topic.committed()) == (0, "3", 1)
        assert ended.stderr.endswith(
            "safeconsumer: commits nothing, as letters are selected: the next run sends "
            "them again\n"
        )
    assert topic.replay() == 4
    assert topic.committed() == 5
    assert topic.run("replay", "--error=KeyError").stdout[0] == "0"
    sent = (0, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4)
    assert topic.replayed() == Counter(f"{topic.name}:0@{n}" for n in sent)


def test_letter_replayed_by_its_offset_is_replayed_by_later_runs_too(topic):
    topic.put_several(2)
    for _ in range(2):
        ended = topic.run("replay", topic=f"{topic.name}:0@1")
        assert (ended.exit_code, ended.stdout) == (0, "1 sent back, 0 could not be\n")
    assert [one.value for one in topic.returned()] == [b"1", b"1"]
    ended = topic.run("replay", topic=f"{topic.name}:0@2")
    assert ended.exit_code == Status.FAILED
    assert f"there is no record at {topic.name}:0@2" in ended.stderr
    assert topic.replay() == 2


def test_dry_run_names_the_targets_and_changes_nothing(topic):
    topic.put()
    topic.put(partition=7)
    topic.put(headers=[("n", None)])
    for _ in range(2):
        ended = topic.run("replay", "--dry-run")
        assert ended.exit_code == Status.FAILED
        assert ended.stdout.splitlines() == [
            f"{topic.name}:0@0  to  {topic.origin}:1",
            f"{topic.name}:0@1  to  {topic.origin}:by its key",
            "would send 2; 1 could not be",
        ]
    assert (topic.returned(), topic.committed()) == ([], None)


def test_letters_that_cannot_be_replayed_are_named_and_skipped(topic):
    gone = f"{topic.origin}-gone"
    topic.put_foreign()
    topic.put(b"1", topic=gone)
    topic.put(b"2")
    topic.put(b"3", headers=[("n", None), ("m", b"")])
    topic.put(b"4", topic=topic.name)
    topic.put(b"5", topic="no name")
    topic.put(b"6", topic="__safeconsumer_holds_ops")
    topic.put(None, None)
    ended = topic.run("replay")
    assert ended.exit_code == Status.FAILED
    assert ended.stdout == "1 sent back, 7 could not be\n"
    start = f"safeconsumer: left {topic.name}:0@"
    assert ended.stderr.splitlines() == [
        f"{start}0: not a letter: the record has no header dead-letter-topic",
        f"{start}1: its topic {gone} does not exist",
        f"{start}3: its headers n were null, which kafka-python cannot write",
        f"{start}4: its topic is this one",
        f"{start}5: its topic no name does not exist",
        f"{start}6: its topic __safeconsumer_holds_ops is internal",
        f"{start}7: its key and value are null, which kafka-python cannot write",
    ]
    assert topic.replay() == 0
    topic.broker.create_topic(gone, 1)
    topic.run("replay", topic=f"{topic.name}:0@1")
    assert [one.value for one in topic.returned(gone)] == [b"1"]
    assert [one.value for one in topic.returned()] == [b"2"]


def test_replay_replaces_the_header_of_an_earlier_replay(topic):
    topic.put()
    topic.replay()
    (first,) = topic.returned()
    topic.put(headers=first.headers)
    topic.replay()
    _, second = sorted(topic.returned(), key=lambda one: one.offset)
    assert second.headers == [
        ("trace", b"1"),
        ("dead-letter-replayed-from", f"{topic.name}:0@1".encode()),
    ]


def test_replayed_letter_has_its_own_trace_header_or_none(topic):
    """An active instrumentor for producers does not add trace headers to replayed letters."""
    from opentelemetry.instrumentation.kafka import (  # noqa: PLC0415 - an extra
        KafkaInstrumentor,
    )
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - likewise

    sent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    topic.put(headers=[("traceparent", sent)])
    topic.put(headers=[])
    instrumentor = KafkaInstrumentor()
    instrumentor.instrument(tracer_provider=TracerProvider())
    try:
        assert topic.replay() == 2
    finally:
        instrumentor.uninstrument()
    traces = [
        [value for name, value in record.headers if name == "traceparent"]
        for record in topic.returned()
    ]
    assert sorted(traces) == [[], [sent]]


# ------------------------------------------------------------ replays that fail or end


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (TopicAuthorizationFailedError("no"), Status.REFUSED, "the broker refuses"),
        (KafkaTimeoutError("late"), Status.UNREACHABLE, "no answer from the broker"),
        (MessageSizeTooLargeError("big"), Status.FAILED, "left"),
    ],
    ids=["refused", "away", "too large"],
)
@pytest.mark.parametrize("is_answer", [True, False], ids=["answer", "call"])
def test_replay_after_a_failed_letter_sends_that_letter_and_the_following_ones(
    topic, error, status, reason, is_answer
):
    topic.put_several(3)

    def fail_second(_, value):
        if value != b"1":
            return None
        if not is_answer:
            raise error
        return SimpleNamespace(get=Mock(side_effect=error))

    with before_each_send(fail_second):
        ended = topic.run("replay")
    assert (ended.exit_code, reason in ended.stderr) == (status, True), ended.output
    # The run stops immediately if the producer refuses a letter.
    sent = 2 if is_answer or status == Status.FAILED else 1
    assert ended.stdout.startswith(f"{sent} sent back, ")
    passed = 3 if status == Status.FAILED else 1
    assert topic.committed() == passed
    assert topic.replay() == 3 - passed


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("last", "options", "status", "advice", "left"),
    [
        (1, [], Status.INTERRUPTED, "run it again to continue", 1),
        (1, ["--since=1h"], Status.INTERRUPTED, "nothing was committed", 3),
        (2, [], Status.DONE, "", 0),
    ],
    ids=["in the middle", "with a filter", "at the last letter"],
)
def test_ctrl_c_stops_a_replay_before_the_next_letter(  # noqa: PLR0913, PLR0917 - a table
    topic, last, options, status, advice, left
):
    topic.put_several(3)

    def press(_, value):
        if value == b"%d" % last:
            signal.raise_signal(signal.SIGINT)

    with before_each_send(press):
        ended = topic.run("replay", *options)
    assert ended.exit_code == status
    assert ended.stdout == f"{last + 1} sent back, 0 could not be\n"
    assert ended.stderr.endswith(
        f"safeconsumer: interrupted; {advice}\n" * bool(advice)
    )
    assert topic.replay() == left


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("options", "committed"), [([], 100), (["--error=ValueError"], None)], ids=short
)
def test_replay_after_a_killed_replay_repeats_the_uncommitted_letters(
    topic, options, committed
):
    """No letter is lost, and a header identifies letters that were replayed twice."""
    topic.put_several(104)

    class Killed(BaseException):
        pass

    def die(producer, value):
        if value == b"102":
            producer.flush(SECONDS)
            raise Killed

    with before_each_send(die), pytest.raises(Killed):
        topic.run("replay", *options)
    assert topic.committed() == committed
    begin = committed or 0
    assert topic.replay() == 104 - begin
    sent = (*range(102), *range(begin, 104))
    assert topic.replayed() == Counter(f"{topic.name}:0@{n}" for n in sent)


@pytest.mark.any_broker
def test_replay_is_refused_while_its_group_has_members(topic, make_consumer):
    topic.put()
    stays = {"session_timeout_ms": 30_000}
    consumer = make_consumer(KafkaConsumer, topic.name, group=topic.group, **stays)
    wait_for(lambda: consumer.poll(10_000), "a record", 100)
    ended = topic.run("replay")
    assert ended.exit_code == Status.USAGE, ended.output
    assert f"the group {topic.group} has members" in ended.stderr
    assert topic.returned() == []


@pytest.mark.embedded_broker
def test_replay_fails_if_the_coordinator_does_not_respond(
    topic, kafka_broker, monkeypatch
):
    topic.put()
    monkeypatch.setattr(letters, "_ANSWER_MS", 300)
    with kafka_broker.hold("OffsetFetch"):
        ended = topic.run("replay")
    assert ended.exit_code == Status.UNREACHABLE, ended.output
    assert topic.returned() == []
