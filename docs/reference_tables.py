"""Generates tables of settings, options, formats, calls and versions from the code."""

import inspect
import re
import zlib
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib.metadata import metadata
from textwrap import dedent

import attrs
from kafka import TopicPartition

import safeconsumer
import safeconsumer.worker
from safeconsumer._kafka import handover, installed
from safeconsumer.console import rest
from safeconsumer.group import report_wire, settings, wire
from safeconsumer.metrics import table
from safeconsumer.spark import options, platforms
from safeconsumer.spark.python.settings import OPTIONS as PYTHON_OPTIONS
from safeconsumer.worker import letters_format
from safeconsumer.worker.letters_format import Letter

_SETTING = "| setting | default | meaning |\n|---|---|---|"
_FIELD = "| field | meaning |\n|---|---|"
_ENTRY = re.compile(r"^(\w+): (.*)")


# ---------------------------------------------------------------- settings

_SETTINGS = """# Settings

Values are checked when the object is created; the [API](api/index.md) lists the errors. Our durations are in seconds; kafka-python's keys that end in `_ms` are in milliseconds, as in kafka-python.

## The consumer

`SafeConsumer(*topics, **settings)`. You can combine these with all of kafka-python's settings, which keep their names and defaults.
"""  # noqa: E501 - one sentence, one line

_ROOMS = {
    "Control": "Pass it as `SafeConsumer(..., control=Control(...))`.",
    "Worker": "Pass these to `Worker(consumer, handle, ...)`.",
    "Pump": "Pass these to `Pump(consumer, ...)`.",
    "Limits": "Pass it as `limits=Limits(...)` to a worker or a pump.",
    "Retry": "Pass it as `retry=Retry(...)` to a worker or a pump.",
    "DeadLetter": "Pass it as `dead_letter=DeadLetter(...)` to a worker or a pump.",
    "Drain": "Pass it as `drain=Drain(...)` to a worker or a pump.",
    "Commit": "Pass it as `commit=Commit(...)` to a worker or a pump.",
    "Breaker": "Pass it as `breaker=Breaker(...)` to a worker or a pump.",
    "Tracing": "Pass it as `trace=Tracing(...)` to a worker.",
}


def settings_page() -> str:
    """Return the page of the constructors' arguments."""
    lines = [_SETTINGS, *_table_of(safeconsumer.SafeConsumer)]
    for name, how in _ROOMS.items():
        lines += [f"\n## `{name}`\n", f"{how}\n"]
        lines += _table_of(
            getattr(safeconsumer, name, None) or getattr(safeconsumer.worker, name)
        )
    return "\n".join(lines) + "\n"


def _table_of(kind: type) -> Iterator[str]:
    described = entries(kind)
    taken = inspect.signature(kind).parameters
    left = described.keys() - taken.keys()
    silent = [
        name
        for name, one in taken.items()
        if name not in described and one.kind is not one.VAR_KEYWORD
    ]
    if left or silent:
        message = f"{kind.__name__}: not taken: {left}; not described: {silent}"
        raise LookupError(message)
    yield _SETTING
    for name, what in described.items():
        yield f"| `{name}` | {_default(taken[name])} | {what} |"


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return ""
    if value is attrs.NOTHING:
        return "empty"
    if isinstance(value, Enum):
        return f"`{type(value).__name__}.{value.name}`"
    if inspect.isfunction(value):
        return "see there"
    return f"`{value!r}`"


def entries(kind: type) -> dict[str, str]:
    """
    Return the description of each argument or attribute in a class's docstring.

    Raises:
        LookupError: the docstring describes no values.
    """
    text = inspect.getdoc(kind) or ""
    found: dict[str, str] = {}
    for head in ("Args:\n", "Attributes:\n"):
        _, _, section = text.partition(f"\n{head}")
        lines = section.split("\n\n")[0]
        for part in re.split(r"\n(?=\w)", dedent(lines)):
            entry = _ENTRY.match(part)
            if entry is not None:
                found[entry[1]] = _cell(part.partition(": ")[2])
    if not found:
        message = f"{kind.__name__} describes none of its values"
        raise LookupError(message)
    return found


def _cell(text: str) -> str:
    one_line = re.sub(r"\s+", " ", text).strip()
    plain = re.sub(r":\w+:`~?\.?([^`]+)`", r"`\1`", one_line).replace("``", "`")
    return (plain[:1].upper() + plain[1:]).replace("|", "\\|")


# ---------------------------------------------------------------- formats

_CONTROL = """# Wire formats

safeconsumer writes these formats into Kafka. Readers ignore JSON fields that they do not know.

## Control records

The holds topic (`{holds}`) is compacted. The key has {count} fields of UTF-8, separated by a NUL byte: the version, the group, the owner and the scope. For example:

```text
{key}
```

The value is a JSON object of at most {most} KiB; a tombstone (null) lifts the hold:

```json
{value}
```

A record whose version is above {version} counts as a hold without an end: its key names group, owner and scope in every version.

### The key

{key_fields}

### The value

In JSON, `version` is written as `v` and `hold_id` as `id`.

{value_fields}
"""  # noqa: E501 - one sentence, one line

_REPORTS = """
## Reports

Each member reports to the status topic (`{status}`), which is compacted, which holds it obeys. The key is the version, the group and the member, separated by NUL bytes. The value is a JSON object. Partitions are ranges by topic: `{{"orders": [[0, 3], [5, 5]]}}` names 0 to 3, and 5. If a report would be longer than {most} KiB, `assigned`, `quiet` and `busy` are empty, and `is_partial` is true.

```json
{value}
```

{fields}
"""  # noqa: E501 - one sentence, one line

_LETTERS = """
## Dead letters

A dead letter has the key, the value and the headers of its record as bytes, followed by these headers, in UTF-8. A header of the record that was null is empty. A letter about a letter has two sets of these headers; the last set counts. A record whose headers lack the topic, the partition or the offset is not a dead letter.

| header | meaning |
|---|---|
{headers}
| `{null_value}` | Present if the key and the value of the record were null; the letter then has an empty value. |
| `{replayed}` | In a record that `safeconsumer dead-letters replay` sent back, the name of its letter; if two records have the same name, the second is a repetition. |
"""  # noqa: E501 - one sentence, one line

_MARKS = """
## Marks of a hand-over

With `pause_handover="assignor"` a member's marks are sent after the assignor's user data: the user data, then a payload (JSON, deflated by zlib), then a trailer of {trailer} bytes. The trailer ends in `{magic}`; before that it has, big-endian, the length of the payload (4 bytes) and its CRC-32 (4 bytes). A reader that starts at the beginning of the user data does not see the marks. This is the JSON of a member that paused `orders:0` and `orders:1` in generation 42:

```text
{marks}
```
"""  # noqa: E501 - one sentence, one line


def formats_page() -> str:
    """Return the page of formats in Kafka, with examples from the code that writes them."""
    return _control() + _reports() + _letters() + _of_marks()


def _control() -> str:
    key = wire.ControlKey("billing", "alice", "orders:3")
    hold = wire.ControlHold(
        "4f0c9f6e", "migration", 3_600_000, host="ops-1", principal="User:alice"
    )
    return _CONTROL.format(
        holds=settings.HOLDS_TOPIC,
        count=len(wire.encode_key(key).split(b"\0")),
        key=_visible(wire.encode_key(key)),
        value=wire.encode_hold(hold).decode(),
        most=wire.MAX_VALUE_BYTES // 1024,
        version=wire.VERSION,
        key_fields=_fields(wire.ControlKey),
        value_fields=_fields(wire.ControlHold),
    )


def _reports() -> str:
    report = report_wire.Report(
        group="billing",
        member="6b1c",
        client_id="billing-1",
        host="worker-3",
        at_ms=1_767_225_600_000,
        applied={settings.HOLDS_TOPIC: 12},
        holds=1,
        assigned={"orders": ((0, 3), (5, 5))},
        quiet={"orders": ((3, 3),)},
        member_id="billing-1-0f0e",
        generation=42,
        skew=30.0,
    )
    written = entries(report_wire.Report)
    del written["clock_offset"]  # computed by the reader
    return _REPORTS.format(
        status=settings.STATUS_TOPIC,
        most=report_wire.MAX_REPORT_BYTES // 1024,
        value=report_wire.encode_report(report).decode(),
        fields=_rows(written),
    )


def _letters() -> str:
    described = entries(Letter)
    for record in ("record", "why", "key", "value", "headers"):
        del described[record]
    rows = [
        f"| `{letters_format.PREFIX}{name.replace('_', '-')}` | {what} |"
        for name, what in described.items()
    ]
    return _LETTERS.format(
        headers="\n".join(rows),
        null_value=letters_format.NULL_VALUE,
        replayed=letters_format.REPLAYED_FROM,
    )


def _of_marks() -> str:
    mark = handover.Mark(42, is_own=True, is_paused=True)
    marks = {TopicPartition("orders", number): mark for number in range(2)}
    written = handover.wrap(b"", marks, handover.MEMBER)
    return _MARKS.format(
        marks=zlib.decompressobj().decompress(written).decode(),
        trailer=handover.TRAILER_BYTES,
        magic=handover.MAGIC.decode(),
    )


def _visible(data: bytes) -> str:
    return repr(data)[2:-1]


def _fields(kind: type) -> str:
    return _rows(entries(kind))


def _rows(described: Mapping[str, str]) -> str:
    return "\n".join(
        (_FIELD, *(f"| `{name}` | {what} |" for name, what in described.items()))
    )


# ---------------------------------------------------------------- REST

_REST = """# REST

`safeconsumer console` also answers programs, on the routes of its pages. It answers in JSON if `Accept` names `application/json` and not `text/html`, or if the request sends JSON. A request that names neither (`*/*`, as `curl` does without `-H 'Accept: application/json'`) gets the page.

`GET` takes its values from the query, `POST` from a JSON object of texts (`Content-Type: application/json`); a value that is not listed is refused. Groups, holds and entries are the same documents as in the commands' `-o json`. In addition there is `known`: the `age` of the console's data in seconds, the `trouble` if there are no newer data, and the parts that are `unread`. A refusal is answered with `application/problem+json`, which has the reason. Lists are complete, without pages. With `--read-only` there is neither `/place` nor `/lift`.

A script logs in with `Authorization: Bearer TOKEN`, the token of `--token-file`. Without the header a `POST` needs the session and the same origin, as pages have them.

| route | takes | effect |
|---|---|---|
"""  # noqa: E501 - one sentence, one line
_PROBES = """
`GET /live` answers while the console runs, and needs no token. `GET /ready` answers 200 while the console's data are complete and current, otherwise 503; it sends no request to a broker. Only the command `doctor` has its findings (`-o json`).
"""  # noqa: E501 - one sentence, one line


def rest_page() -> str:
    """Return the page of the console's routes for programs."""
    calls = (
        f"| `{route}` | {', '.join(f'`{name}`' for name in takes)} | {_cell(does)} |"
        for route, (takes, does) in rest.CALLS.items()
    )
    return _REST + "\n".join(calls) + "\n" + _PROBES


# ---------------------------------------------------------------- Spark, versions

_SPARK = """# Spark

`format("safekafka")` accepts every option of Spark's own Kafka source, and these options. Names are not case-sensitive; an option that begins with `hold` and is not listed here is refused.

| option | default | meaning |
|---|---|---|
"""  # noqa: E501 - one sentence, one line
_CLIENT = (
    "| `holds.control.kafka.*` | as `kafka.*` | Settings of the clients that read the "
    "control topics. |\n"
)
_TUNED = """
## Defaults that differ

The source sets these options if the stream does not; `format("kafka")` leaves them to the Kafka client.

| option | value |
|---|---|
"""  # noqa: E501 - one sentence, one line
_PLATFORMS = """
## Versions

The tests run on Spark {oldest} to {newest}. An older Spark is refused; a newer Spark causes a warning. The source needs Java {java} or newer. The Kafka connector must be of the same line as Spark and built for the same Scala: `org.apache.spark:spark-sql-kafka-0-10_SCALA:VERSION`. Spark Connect, continuous and real-time mode, batch reads and writes are refused.

## The source in pure Python

`safeconsumer.spark.python.SafeKafkaSource` is for [Spark Connect](../how-to/spark-connect.md). It accepts the options about holds, the `kafka.*` options for connections and fetches, and these; it refuses other options.

| option | default | meaning |
|---|---|---|
{python}

## In Python

`from safeconsumer import spark` gives you these functions, and does not import pyspark.

"""  # noqa: E501 - one sentence, one line


def spark_page() -> str:
    """Return the page of Spark's options and versions."""
    ours = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {what} |"
        for name, (default, what) in options.OPTIONS.items()
    ]
    tuned = [f"| `{name}` | `{value}` |" for name, value in options.TUNED.items()]
    python = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {what} |"
        for name, (default, what) in PYTHON_OPTIONS.items()
    ]
    versions = _PLATFORMS.format(
        python="\n".join(python),
        oldest=_dotted(platforms.OLDEST),
        newest=_dotted(platforms.NEWEST),
        java=platforms.JAVA,
    )
    rows = "\n".join(ours) + "\n" + _CLIENT
    return _SPARK + rows + _TUNED + "\n".join(tuned) + "\n" + versions


_COMPATIBILITY = """# Compatibility

| what | versions |
|---|---|
| kafka-python | `{kafka}` |
| Python | {pythons} |
| Spark | {spark}, on Java {java} or newer |

With another kafka-python the import or the constructor of `SafeConsumer` raises `UnsupportedKafkaPythonError`, which names the installed and the supported versions.
With another aiokafka the constructor of a consumer on it raises `UnsupportedAiokafkaError`.

## Extras

`pip install 'safeconsumer[NAME]'` installs the packages in the last column.

| extra | purpose | packages |
|---|---|---|
"""  # noqa: E501 - one sentence, one line


def compatibility_page() -> str:
    """Return the page of versions, from the package's metadata."""
    about = metadata("safeconsumer")
    prefix = "Programming Language :: Python :: 3."
    minors = [
        f"3.{line.removeprefix(prefix)}"
        for line in about.get_all("Classifier", [])
        if line.startswith(prefix)
    ]
    page = _COMPATIBILITY.format(
        kafka=installed.SUPPORTED,
        pythons=", ".join(minors),
        spark=f"{_dotted(platforms.OLDEST)} to {_dotted(platforms.NEWEST)}",
        java=platforms.JAVA,
    )
    return page + "\n".join(_extras(about.get_all("Requires-Dist", []))) + "\n"


_EXTRA = re.compile(r"""(.+?) ?; (?:\((.+)\) and )?extra == ['"]([\w-]+)['"]""")
_OUR_OWN = frozenset({"ci", "docs", "lint", "test"})
_PURPOSES = {
    "aiokafka": "members on aiokafka",
    "audit": "judging journals, and checkpoints of streams",
    "confluent": "members on confluent-kafka",
    "console": "the operators' page in a browser",
    "demo": "the demo",
    "fast": "compiled lz4, snappy and zstandard",
    "group": "group holds and the command line",
    "metrics": "Prometheus",
    "otel": "OpenTelemetry",
    "spark": "the Spark source, for the pyspark that your platform has",
}


def _extras(requirements: list[str]) -> Iterator[str]:
    brought: dict[str, list[str]] = {}
    for line in requirements:
        found = _EXTRA.fullmatch(line)
        if found is not None:
            where = f" (`{found[2]}`)" if found[2] else ""
            brought.setdefault(found[3], []).append(f"`{found[1]}`{where}")
    for extra, what in brought.items():
        if extra not in _OUR_OWN:
            yield f"| `{extra}` | {_PURPOSES[extra]} | {', '.join(what)} |"


def _dotted(line: tuple[int, int]) -> str:
    return ".".join(map(str, line))


# ---------------------------------------------------------------- metrics

_METRICS = """# Metrics

Each value of a consumer or a worker also has the labels `client_id` and `group`. A member has fewer than 100 series, however many partitions it owns; a console has 15 for each group that is held or reports, and two for each held topic.

*OpenTelemetry* is the instrument that `safeconsumer.metrics.otel.observe(worker)` observes (extra `otel`), with its unit; when OpenTelemetry exports the metric to Prometheus, it again has the name in this table, and the labels `messaging_client_id` and `messaging_consumer_group_name`, as its semantic conventions call `client_id` and `group`. The histogram is an exception: OpenTelemetry cannot observe a histogram, so there are two counters instead, `.count` and `.sum`.
"""  # noqa: E501 - one sentence, one line

_SOURCES: dict[table.Source, str] = {
    "consumer": "A consumer",
    "control": "A consumer with `control=`",
    "worker": "A worker\n\nA worker has these in addition to its consumer's metrics.",
    "console": "The console\n\nThe console exports these with `--metrics`, for groups "
    "that are held or whose members report.",
}


def metrics_page() -> str:
    """Return the page of all metrics."""
    lines = [_METRICS]
    for source, head in _SOURCES.items():
        lines += [f"## {head}\n", "| name | type | unit | labels | OpenTelemetry "]
        lines[-1] += "| meaning |\n|---|---|---|---|---|---|"
        lines += [_metric(one) for one in table.of(source)]
        lines.append("")
    return "\n".join(lines)


def _metric(metric: table.Metric) -> str:
    labels = (
        f"`{one.name}`: {', '.join(map(_code, one.values))}".removesuffix(": ")
        for one in metric.labels
    )
    instrument = "" if metric.source == "console" else f"`{table.name_of(metric)}`"
    if instrument and table.unit_of(metric):
        instrument += f" in `{table.unit_of(metric)}`"
    cells = (
        *(_code(metric.full_name), metric.kind, metric.unit, "; ".join(labels)),
        *(instrument, metric.meaning),
    )
    return f"| {' | '.join(cells)} |"


def _code(name: str) -> str:
    return f"`{name}`"
