"""Hypothesis feeds hostile bytes to the parsers of untrusted input."""

import warnings
from collections.abc import Callable

import pytest
from attrs import frozen
from hypothesis import strategies as st
from kafka import TopicPartition

from safeconsumer._kafka import handover
from safeconsumer.group import report_wire as reports
from tests.harness.audit.fleets import BAD, GOOD
from tests.harness.drawing import draw, examples
from tests.harness.listing import short
from tests.unit.fuzz import readers


@frozen(kw_only=True)
class Target:
    """A reader and its seed inputs."""

    name: str
    feed: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _journal_seeds():
    fleets = [make() for make in (*BAD, *GOOD)]
    whole = [journal.text().encode() for fleet in fleets for journal in fleet]
    more = (
        b'"e":"fault","id":1,"kind":"freeze","targets":["m1"],"seconds":2.5',
        b'"e":"deliver","tp":"orders:0","from":0,"next":5,"first":0,"last":4,"count":5',
        b'"e":"return","op":"pause","id":1,"scopes":["re:ord.*"],"owner":"app"',
        b'"e":"parked","tp":"orders:0","bytes":7,"limit":9',
    )
    return (*whole, *more, b"\n".join(more))


_HOLD = b'{"v":1,"id":"x","reason":"why","ttl_ms":5}'
_KEY = b"1\0g\0alice\0orders"

TARGETS = (
    Target(
        name="scope",
        feed=readers.scope,
        seeds=(b"orders", b"orders:3", b"re:ord.*", b"@all", b"re:(?i)a|b[^c]{1,3}"),
    ),
    Target(
        name="control-key",
        feed=readers.control_key,
        seeds=(_KEY, b"3\0g\0o\0orders\0x\0y"),
    ),
    Target(
        name="control-hold",
        feed=readers.control_hold,
        seeds=(_HOLD, b'{"v":7,"reason":"n"}'),
    ),
    Target(
        name="control-records",
        feed=readers.control_records,
        seeds=(
            _KEY + b"\n" + _HOLD + b"\n\n" + _KEY,
            b"1\0g\0bob\0re:ord.*\n" + _HOLD,
            b"2\0g\0o\0new\0x\n" + _HOLD,
        ),
    ),
    Target(
        name="report",
        feed=readers.report,
        seeds=(
            reports.encode_report(
                reports.Report(
                    group="g",
                    member="m",
                    client_id="c",
                    host="h",
                    state="ready",
                    at_ms=1,
                    applied={"t": 4},
                    holds=1,
                    skipped=0,
                    assigned={"orders": ((0, 3),)},
                    quiet={"orders": ((0, 0),)},
                    gated=0,
                )
            ),
        ),
    ),
    Target(
        name="handover",
        feed=readers.handed_over,
        seeds=(
            b'{"version":1,"by":"member","marks":[["orders",3,true,[0,1]]]}',
            handover.wrap(
                b"inner",
                {
                    TopicPartition("orders", 1): handover.Mark(
                        3, is_own=True, is_paused=True
                    )
                },
                handover.MEMBER,
            ),
        ),
    ),
    Target(name="journal", feed=readers.journals, seeds=_journal_seeds()),
    Target(
        name="checkpoint",
        feed=readers.checkpoint,
        seeds=(
            (
                b'v1\n{"batchTimestampMs":1700000000000}\n{"orders":{"0":5}}\n\n'
                b'v1\n{"batchTimestampMs":1700000500000}\n-\n{"orders":{"0":9}}\n\n'
                b'\0v1\n{"orders":{"0":0}}\n\n'
                b'[{"topic":"orders","partition":0,"at":5,"to":7}]'
            ),
            b'v1\n{"batchTimestampMs":1e999}\n{"orders":{"0":1e999}}',
            (
                b'v1\n{"batchTimestampMs":1e30}\n{"orders":{"0":5}}\n\n'
                b'v1\n{"batchTimestampMs":1e31}\n{"orders":{"0":9}}'
            ),
        ),
    ),
    Target(
        name="properties",
        feed=readers.connection,
        seeds=(
            (
                b"bootstrap.servers=a:9092\nsecurity.protocol: SASL_SSL\n"
                b'sasl.jaas.config=org.x username="u" \\\n password="SECRET";\n'
                b"ssl.keystore.location=/k.jks\nretry.backoff.ms=100\n"
            ),
        ),
    ),
    Target(
        name="spark-options",
        feed=readers.spark_options,
        seeds=(
            (
                b"holds=orders:3 returns re:tmp.*\nholds.control=true\nholds.group=g\n"
                b"holds.controlTimeoutMs=500\nkafka.bootstrap.servers=a:1"
            ),
        ),
    ),
    Target(
        name="settings",
        feed=readers.settings,
        seeds=(
            (
                b'{"limits": {"records": 9, "age": 1.5}, '
                b'"retry": {"attempts": 2}, "commit": {"every": 1}, '
                b'"drain": {"revoke": 2},'
                b' "control": {"holds_topic": "a", "unavailable": "run"}}'
            ),
        ),
    ),
    Target(name="duration", feed=readers.duration, seeds=(b"90s", b"1d12h", b"1.5m")),
)


BY_NAME = {target.name: target for target in TARGETS}

# Inputs for which a reader broke a promise in an earlier version.
FOUND = {
    # A duration that exceeds the range of floats was read as infinite.
    "duration": (b"9" * 400 + b"s",),
    "journal": (
        # A negative count has no logarithm.
        (
            b'"e":"assigned","partitions":["x:0"]\n"e":"deliver","tp":"x:0",'
            b'"from":9,"next":-5,"first":9,"last":-4,"count":-7'
        ),
    ),
    # Python refuses to convert a number with this many digits.
    "properties": (b"retry.backoff.ms=" + b"9" * 5000,),
    "settings": (
        # Integers beyond the range of floats are not finite, and cannot be compared with a
        # float.
        b'{"limits":{"age":1%b}}' % (b"0" * 400),
        b'{"control":{"run_after":1%b}}' % (b"0" * 400),
    ),
}

_BYTES = st.binary(max_size=40)


def damaged(target):
    """Return a strategy for damaged seeds of a target and for arbitrary bytes."""

    def replaced(seed, at, length, piece):
        at %= len(seed) + 1
        return seed[:at] + piece + seed[at + length :]

    place, length = st.integers(0, 4096), st.integers(0, 8)
    seeds = st.sampled_from(target.seeds)
    return st.builds(replaced, seeds, place, length, _BYTES) | _BYTES


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_target_reads_its_seeds_without_an_error(target):
    for seed in target.seeds:
        target.feed(seed)


@pytest.mark.parametrize(
    ("name", "data"),
    [(name, data) for name, own in FOUND.items() for data in own],
    ids=short,
)
def test_input_that_once_broke_a_promise_is_handled(name, data):
    BY_NAME[name].feed(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@examples(60, 3_000)
def test_hostile_bytes_do_not_break_a_promise(target, most):
    """Readers raise only documented errors, and read the values that were written."""

    def fed(data):
        target.feed(data)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the re module warns about unusual patterns
        draw(most, fed, data=damaged(target))
