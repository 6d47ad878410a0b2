"""Poison of every kind ends by the policy: nothing crashes, and nothing blocks for ever."""

import json
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from kafka.errors import TopicAuthorizationFailedError
from kafka.serializer import Deserializer

from safeconsumer.events import worker as worker_events
from safeconsumer.worker import (
    DeadLetter,
    DeserializationError,
    RecordFailedError,
    Reject,
    Retry,
)
from tests.broker.worker.test_contract import read_all
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker

ONCE = Retry(attempts=1, first=0.05, most=0.05)


class UnshownError(Exception):
    """Cannot be shown."""

    def __repr__(self) -> str:
        message = "planted"
        raise RuntimeError(message)

    __str__ = __repr__


def refuse(record: Any, _context: object) -> None:  # noqa: ANN401 - upstream's
    """Fail on whatever says so, and on records without a value."""
    if record.value in (None, b"bad"):
        message = "told to"
        raise ValueError(message)


def produce(lab: Lab, **sent: Any) -> None:  # noqa: ANN401 - the producer's own
    """Write one record to partition 0, and a good one behind it."""
    for record in (sent, {"value": b"good"}):
        lab.producer.send(lab.topic, partition=0, **record)
    lab.producer.flush(30)


def letters_run(lab: Lab, dead: str, handle: Any = refuse, **settings: Any) -> Running:  # noqa: ANN401
    """Run a worker with dead letters."""
    producer = settings.pop("producer", None) or lab.producer
    settings = {"retry": ONCE, **settings}
    letters = DeadLetter(producer, dead, max_ratio=None)
    return lab.run(handle, dead_letter=letters, **settings)


def test_null_headers_become_empty_ones(lab: Lab) -> None:
    """W7: kafka-python's producer takes no null; the letter says which were."""
    lab.new_topic(partitions=1)
    dead = lab.other_topic()
    seen = threading.Event()

    def handle(record: Any, _context: object) -> None:  # noqa: ANN401
        seen.set()
        refuse(record._replace(value=b"bad"), _context)

    plain = lab.consumer()
    poll = plain.poll

    def with_nulls(**how: Any) -> Any:  # noqa: ANN401 - no producer at hand writes them
        return {
            tp: [one._replace(headers=[("a", None), ("b", b"1")]) for one in records]
            for tp, records in poll(**how).items()
        }

    plain.poll = with_nulls
    lab.produce({0: ["v"]})
    letters = DeadLetter(lab.producer, dead, max_ratio=None)
    running = lab.run(handle, plain, dead_letter=letters, retry=ONCE)
    running.wait_done(1)
    running.end()
    (letter,) = read_all(lab, dead, 1)
    headers = dict(letter.headers)
    assert (headers["a"], headers["b"]) == (b"", b"1")
    assert headers["dead-letter-null-headers"] == b"a"


def test_neither_key_nor_value(lab: Lab) -> None:
    """W7: the letter's value is empty then, and a header says that it was null."""
    lab.new_topic(partitions=1)
    dead = lab.other_topic()
    consumer = lab.consumer()
    poll = consumer.poll

    def without(**how: Any) -> Any:  # noqa: ANN401 - kafka-python refuses to write one
        return {
            tp: [one._replace(key=None, value=None) for one in records]
            for tp, records in poll(**how).items()
        }

    consumer.poll = without
    lab.produce({0: ["v"]})
    letters = DeadLetter(lab.producer, dead, max_ratio=None)
    running = lab.run(refuse, consumer, dead_letter=letters, retry=ONCE)
    running.wait_done(1)
    running.end()
    (letter,) = read_all(lab, dead, 1)
    assert (letter.key, letter.value) == (None, b"")
    assert dict(letter.headers)["dead-letter-null-value"] == b"true"


@pytest.mark.parametrize("error", [ValueError("x" * 2_000_000), UnshownError()])
def test_an_error_too_long_or_that_cannot_be_shown(lab: Lab, error: Exception) -> None:
    """W7: its text is cut, or replaced; the letter arrives."""
    lab.new_topic(partitions=1)
    dead = lab.other_topic()
    produce(lab, value=b"bad")

    def handle(record: Any, _context: object) -> None:  # noqa: ANN401
        if record.value == b"bad":
            raise error

    running = letters_run(lab, dead, handle)
    running.wait_done(2)
    assert running.end().dead_letters == 1
    (letter,) = read_all(lab, dead, 1)
    name = f"{type(error).__module__}.{type(error).__qualname__}"
    assert dict(letter.headers)["dead-letter-exception"] == name.encode()
    assert len(dict(letter.headers)["dead-letter-message"]) < 5_000


def test_a_record_as_large_as_a_request_says_less(
    lab: Lab,
    make_producer: Any,  # noqa: ANN401 - a fixture
) -> None:
    """W7: first the stack and the message go, so that the record itself gets through."""
    lab.new_topic(partitions=1)
    dead = lab.other_topic()
    value = b"v" * 30_000
    produce(lab, value=value)

    def handle(record: Any, _context: object) -> None:  # noqa: ANN401
        if record.value == value:
            raise ValueError("x" * 4_000)

    small = make_producer(enable_idempotence=False, max_request_size=32_000)
    running = letters_run(lab, dead, handle, producer=small)
    running.wait_done(2)
    running.end()
    (letter,) = read_all(lab, dead, 1)
    headers = dict(letter.headers)
    assert (letter.value, headers["dead-letter-offset"]) == (value, b"0")
    assert "dead-letter-stack" not in headers


@pytest.mark.parametrize("then", ["stop", "skip", "block"])
def test_what_cannot_be_produced_goes_to_the_policy(
    lab: Lab,
    make_producer: Any,  # noqa: ANN401 - a fixture
    then: Any,  # noqa: ANN401 - a literal
) -> None:
    """W7: no later attempt could be better."""
    lab.new_topic(partitions=1)
    dead = lab.other_topic()
    produce(lab, value=b"v" * 30_000)

    def handle(record: Any, _context: object) -> None:  # noqa: ANN401
        if record.value != b"good":
            message = "told to"
            raise ValueError(message)

    small = make_producer(enable_idempotence=False, max_request_size=20_000)
    running = letters_run(lab, dead, handle, producer=small, on_exhausted=then)
    if then == "skip":
        running.wait_done(2)
        assert running.end().skipped == 1
    elif then == "stop":
        running.wait_end()
        assert isinstance(running.error, RecordFailedError)
        assert "MessageSizeTooLarge" in str(running.error)
        assert lab.committed() == {0: 0}
    else:
        kind = worker_events.DeadLetterRefused
        wait_for(lambda: kind in map(type, running.events), "a refusal")
        running.end()
        assert lab.committed() == {0: 0}


def test_what_may_pass_is_tried_again_and_holds_up_no_other(lab: Lab) -> None:
    """W7: a letter whose answer does not come; those of other partitions arrive."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["bad", "good"], 1: ["bad", "good"]})
    never: Future[None] = Future()
    denied = [TopicAuthorizationFailedError("planted")]

    def sink(record: Any, _failure: object) -> Any:  # noqa: ANN401
        if record.partition == 0:
            return never
        if denied:
            raise denied.pop()
        return None

    running = lab.run(refuse, dead_letter=sink, retry=ONCE)
    running.wait_done(2)
    assert not denied
    never.set_result(None)
    running.wait_done(4)
    assert running.end().dead_letters == 2


def test_a_sink_may_refuse_a_letter(lab: Lab) -> None:
    """W7: ``Reject`` out of a callable is for good."""
    lab.new_topic(partitions=1)
    produce(lab, value=b"bad")

    def sink(_record: object, _failure: object) -> None:
        message = "not here"
        raise Reject(message)

    running = lab.run(refuse, dead_letter=sink, retry=ONCE, on_exhausted="skip")
    running.wait_done(2)
    report = running.end()
    assert (report.skipped, report.dead_letters) == (1, 0)


# ------------------------------------------------------------ deserializers


def as_json(data: bytes) -> object:
    """Deserialize, or raise."""
    return json.loads(data)


def note(record: Any, context: Any) -> None:  # noqa: ANN401 - upstream's
    """Fail unless the value was deserialized."""
    assert isinstance(record.value, dict), (record, context)


async def note_async(record: Any, context: Any) -> None:  # noqa: ANN401 - upstream's
    """Do the same."""
    note(record, context)


def note_all(records: Any, context: Any) -> None:  # noqa: ANN401 - upstream's
    """Do the same for batches."""
    for record in records:
        note(record, context)


@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"handle": note},
        {"handle": note, "executor": "process", "concurrency": 1},
        {"handle": note_async, "executor": "asyncio"},
        {"handle": note_all, "batch": 5},
        {"handle": note, "order": "key", "key": lambda record: record.value["k"]},
    ],
    ids=["thread", "process", "asyncio", "batch", "key"],
)
def test_a_deserializer_that_raises_fails_its_record(
    lab: Lab, settings: dict[str, Any]
) -> None:
    """W7: at once, as no attempt would be better; the letter has the bytes as they came."""
    lab.new_topic(partitions=1)
    lab.produce({0: ['{"k": 1}', "{bad", '{"k": 2}', '{"k": 3}']})
    letters: list[Any] = []
    running = lab.run(
        settings.pop("handle"),
        lab.consumer(value_deserializer=as_json),
        dead_letter=lambda record, failure: letters.append((record, failure)),
        **settings,
    )
    running.wait_done(4)
    report = running.end()
    assert (report.done, report.dead_letters) == (4, 1)
    ((record, failure),) = letters
    assert (record.offset, record.value) == (1, b"{bad")
    assert isinstance(failure.error, DeserializationError)
    assert failure.attempts == 1
    assert lab.committed() == {0: 4}


def test_a_registry_that_is_away_is_tried_again(lab: Lab) -> None:
    """W7: what is not about the data may pass."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    away = [ConnectionError("planted"), ConnectionError("planted")]
    values: list[Any] = []

    class Registry:
        def deserialize(self, _topic: str, _headers: Any, data: bytes) -> str:  # noqa: ANN401
            if away:
                raise away.pop()
            return data.decode()

        def close(self) -> None:
            pass

    Deserializer.register(Registry)
    running = lab.run(
        lambda record, _context: values.append(record.value),
        lab.consumer(value_deserializer=Registry()),
        retry=Retry(attempts=3, first=0.05, most=0.05),
    )
    running.wait_done(1)
    running.end()
    assert (values, running.worker.stats().retries) == (["v"], 2)
