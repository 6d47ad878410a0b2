"""
Feeds hostile bytes to each of our readers, and checks the results.

Each function takes bytes, and raises only if a reader breaks a promise: if the reader
raises an undocumented error, or if it reads a value other than the written value.
"""

import json
import math
import zlib
from contextlib import suppress

from safeconsumer._kafka import handover
from safeconsumer.audit import control
from safeconsumer.audit.checkpoint import checkpoint_of, judged
from safeconsumer.audit.perfetto import Collector
from safeconsumer.audit.results import Settings
from safeconsumer.errors import (
    CheckpointError,
    ClientPropertyError,
    ControlSettingError,
    JournalError,
    ScopeSyntaxError,
    SparkSettingError,
    WorkerSettingError,
)
from safeconsumer.group import durations, properties, wire
from safeconsumer.group import report_wire as reports
from safeconsumer.group.settings import Control
from safeconsumer.group.state import RawRecord
from safeconsumer.holds import scope as scopes
from safeconsumer.spark import options
from safeconsumer.worker.retry import Retry
from safeconsumer.worker.settings import Commit, Drain
from safeconsumer.worker.watermarks import Limits
from tests.harness.audit.journals import Read
from tests.harness.group.lab import ControlLab, control_record


def _text(data):
    return data.decode("utf-8", "surrogateescape")


def scope(data):
    """A scope is unchanged after it is written in the notation and read again."""
    text = _text(data)
    with suppress(ScopeSyntaxError):
        read = scopes.parse(text)
        assert scopes.parse(str(read)) == read
        read.covers(("orders", 3))


def control_key(data):
    """A key is unchanged after it is written and read again."""
    read = wire.decode_key(data)
    if read is not None:
        assert wire.decode_key(wire.encode_key(read)) == read


def control_hold(data):
    """A hold of our version is unchanged after it is written and read again."""
    read = wire.decode_hold(data)
    if read is not None and read.version == wire.VERSION:
        assert wire.decode_hold(wire.encode_hold(read)) == read


def report(data):
    """Any bytes can be decoded as a report without an error."""
    read = reports.decode_report(data)
    if read is not None:
        reports.encode_report(read)
        for ranges in (read.assigned, read.quiet):
            assert reports.count_of(ranges) >= 0


def handed_over(data):
    """Removing our trailer leaves the bytes of the inner assignor unchanged."""
    assert data.startswith(handover.unwrap(data)[0])
    # Repeat the check with a valid checksum, which a fuzzer would never guess.
    for payload in (data, zlib.compress(data)):
        check = zlib.crc32(payload)
        trailer = handover._TRAILER.pack(len(payload), check, handover.MAGIC)
        assert handover.unwrap(b"inner" + payload + trailer)[0] == b"inner"


def control_records(data):
    """Every readable record takes effect, whatever else is on the holds topic."""
    lab = ControlLab()
    lab.hear(control_record("orders", 0))
    for number, record in enumerate(data.split(b"\n\n")):
        key, _, value = record.partition(b"\n")
        lab.hear(RawRecord(key or None, value or None, number + 1, number))
    assert lab.ledger.view() is not None
    lab.hear(control_record("audit", 10_000))
    assert ("audit", "operator:alice") in lab.held()


def journals(data):
    """A journal is either refused with a reason, or judged and traced."""
    _traced(data)
    # Repeat the check with a valid first line and valid numbers to reach the entries.
    lines = [b'{"journal":5,"member":"a","group":"g","at":1}']
    for number, line in enumerate(data.split(b"\n"), start=1):
        lines.append(b'{"n":%d,"at":%d,%s}' % (number, number, line))
    _traced(b"".join(line + b"\n" for line in lines))


def _traced(data):
    with suppress(JournalError):
        collector = Collector(Settings())
        collector.read(Read("fuzzed", data))
        assert json.loads(collector.trace())


def checkpoint(data):
    """A checkpoint with one file of each kind is judged, or refused with a reason."""
    names = ("offsets/0", "offsets/1", "sources/0/0", "sources/0/skips/1")
    parts = _text(data).split("\n\n")
    files = dict(zip(names, parts, strict=False))
    span = control.Span(
        group="g", holder="operator:eve", scope="@all", start=1.0, end=math.inf
    )
    with suppress(CheckpointError):
        found = checkpoint_of("c", files)
        rows = judged(found, control.Control(spans=(span,), until=2e9), "g")
        assert json.dumps([row.as_dict() for row in rows])


def connection(data):
    """A properties file is converted or refused, and no error contains a secret."""
    secret = "Tr0ub4dor"  # noqa: S105 - the check has to find a leak of the secret
    text = _text(data).replace("SECRET", secret)
    try:
        properties.client_configs(properties.read_properties(text))
    except ClientPropertyError as error:
        found = properties.read_properties(text)
        secret_names = {"sasl.jaas.config", "ssl.key.password", "ssl.keystore.password"}
        leaks = [one for one in secret_names if secret in found.get(one, "")]
        others = any(secret in v for k, v in found.items() if k not in secret_names)
        assert not leaks or others or secret not in str(error)


def spark_options(data):
    """Options are pairs of a name and a string; an error names the invalid option."""
    pairs = (line.partition("=") for line in _text(data).split("\n"))
    with suppress(SparkSettingError):
        read = options.parse({name: value for name, _, value in pairs})
        assert read.control_timeout >= 0


_KINDS = {
    "limits": (Limits, WorkerSettingError),
    "retry": (Retry, WorkerSettingError),
    "commit": (Commit, WorkerSettingError),
    "drain": (Drain, WorkerSettingError),
    "control": (Control, ControlSettingError),
}


def settings(data):
    """Settings with any JSON values are accepted, or refused with their own error."""
    try:
        document = json.loads(_text(data))
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    for name, (make, error) in _KINDS.items():
        given = document.get(name)
        if isinstance(given, dict):
            known = {one.name for one in make.__attrs_attrs__}
            with suppress(error):
                make(**{key: given[key] for key in given if key in known})


def duration(data):
    """A duration is read as a finite time that can be written, or raises a ValueError."""
    with suppress(ValueError):
        seconds = durations.parse_duration(_text(data))
        assert 0 < seconds < math.inf
        durations.duration_text(seconds)
