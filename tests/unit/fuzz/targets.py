"""What is fed with hostile bytes, and what inputs are made of."""

from collections.abc import Callable

from attrs import frozen
from kafka import TopicPartition

from safeconsumer._kafka import handover
from safeconsumer.group import report_wire as reports
from tests.harness.audit import bad
from tests.unit.fuzz import readers


@frozen(kw_only=True)
class Target:
    """A reader, and inputs to begin with."""

    name: str
    feed: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _journal_seeds():
    fleets = [make() for make in (*bad.BAD, *bad.GOOD)]
    whole = [told.text().encode() for fleet in fleets for told in fleet]
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
                b' "control": {"operator_topic": "a", "unavailable": "run"}}'
            ),
        ),
    ),
    Target(name="duration", feed=readers.duration, seeds=(b"90s", b"1d12h", b"1.5m")),
)

BY_NAME = {target.name: target for target in TARGETS}
