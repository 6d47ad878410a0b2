"""Measures all clients' speed; writes the tables in the README and on a page."""

import json
from pathlib import Path

from tests.bench import throughput, trickle
from tests.bench.figures import median
from tests.bench.throughput import CLIENTS, CPU, LAPS, OURS, READING, SMALL, SPEED
from tests.bench.trickle import P50, P99
from tests.bench.workers import lapped
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.processes import ROOT

ROUNDS = 2
RESUMED = "500 records after resume"
TOGGLED = "pause, resume of one partition"
_RECORDS = 200_000  # more than a client prefetches before the pause

DATA = Path(__file__).with_name("speed.json")
# Table rows that show each client's own value: title, row and name in the report.
_VALUES = {
    "resumed": ("500 records after `resume`: ms", "resumed", RESUMED),
    "toggled": ("`pause`, `resume` of a partition: us", "resumed", TOGGLED),
    "p50": ("500 records/s one by one: p50 of latency, ms", "one-by-one", P50),
    "p99": ("500 records/s one by one: p99 of latency, ms", "one-by-one", P99),
    "cpu": (f"500 records/s one by one: {CPU}, us", "one-by-one", CPU),
    "thousand": (
        f"50 records/s one by one, of 1,000 partitions: {CPU}, us",
        "thousand",
        CPU,
    ),
}
README = ROOT / "README.md"
# The rows in each page's table, by their names in ``_VALUES`` and ``READING``.
PAGES = {
    README: ("500", "10KB", "p50"),
    ROOT / "docs" / "explanation" / "speed.md": (*READING, *_VALUES),
}
_OTHERS = [one for one in CLIENTS if one != OURS]


def resumed(stage):
    """Time ``resume`` after a pause of half a second, with records left to read."""
    topic = stage.filled(SMALL, max(2_400, _RECORDS // stage.sizes.scale))
    # A fetch that was sent before the resume may wait 500 ms, which is Kafka's default.
    every = {"partitions": SMALL.partitions, "wait_ms": 500}
    kinds = {one: stage.reader(one, topic, **every) for one in CLIENTS}
    taken = lapped(kinds, "stop", rounds=stage.sizes.rounds, laps=LAPS)
    stage.drop(topic)
    for one in CLIENTS:
        waits = [seconds * 1e3 for seconds in taken["resumed"][one]]
        yield median("resumed", f"{RESUMED}, {one}", waits, "ms")
    for one in CLIENTS:
        calls = [round(seconds * 1e6, 2) for seconds in taken["toggled"][one]]
        most = 30.0 if one == OURS else None
        yield median("resumed", f"{TOGGLED}, {one}", calls, "us", at_most=most)


ROWS = throughput.ROWS | trickle.ROWS | {"resumed": resumed}


def write(result):
    """Store a report's figures that the tables need, and update the pages."""
    DATA.write_text(_text(kept(result)), "utf-8")
    for page in PAGES:
        page.write_text(written(page, page.read_text("utf-8")), "utf-8")


def _text(data):
    """Return a mapping as JSON text with one line for each key."""
    lines = [f" {json.dumps(key)}: {json.dumps(data[key])}" for key in data]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def kept(result):
    """Return a report's figures that the tables need, by row and client."""
    versions = [
        f"{name} {result['versions'][name]}"
        for name in ("aiokafka", "confluent-kafka", "kafka-python")
    ]
    found = {(one["row"], one["name"]): one["measured"] for one in result["figures"]}
    return {
        "stamp": f"We measured on {result['date'][:10]}, on "
        f"{result['machine']['cores']} cores, "
        f"Python {result['versions']['python']}, Apache Kafka {KAFKA_VERSION}; "
        f"{', '.join(versions)}.",
        **{
            row: {
                client: _rounded(
                    found, {what: (row, f"{what} / {client}") for what in (SPEED, CPU)}
                )
                for client in _OTHERS
            }
            for row in READING
        },
        **{
            key: _rounded(found, {one: (row, f"{name}, {one}") for one in CLIENTS})
            for key, (_, row, name) in _VALUES.items()
        },
    }


def _rounded(found, names):
    return {name: round(found[key], 3) for name, key in names.items() if key in found}


def written(page, text):
    """Return a page's text with its current table; a dash stands for a missing value."""
    data = json.loads(DATA.read_text("utf-8"))
    lines = [[f"ours / theirs: {SPEED}; {CPU}", *_OTHERS], ["---"] * (1 + len(_OTHERS))]
    for row in PAGES[page]:
        if row in READING:
            cells = [_ratios(data[row][one]) for one in _OTHERS]
            lines.append([READING[row].title, *cells])
        else:
            values = data[row]
            cells = [
                f"{_short(values, OURS)} / {_short(values, one)}" for one in _OTHERS
            ]
            lines.append([_VALUES[row][0], *cells])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    stamp = data["stamp"]
    if page == README:  # the README does not give the clients' versions
        stamp = f"{stamp.partition(';')[0]}."
    return _put(text, f"{table}\n\n{stamp}")


def _ratios(values):
    return "; ".join(
        f"{values[what]:.2f}" if what in values else "-" for what in (SPEED, CPU)
    )


def _short(values, client):
    """Return a client's value with two significant digits; from 10 upwards as an integer."""
    if client not in values:
        return "-"
    value = values[client]
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _put(page, text):
    """Return the page with this text between the page's two marker comments."""
    first = "<!-- speed: by python -m tests.bench speed --kafka=java --write -->"
    last = "<!-- speed -->"
    before, found, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not found or not end:
        message = f"the page lacks {first} or {last} after it"
        raise ValueError(message)
    return f"{before}{first}\n{text}\n{last}{after}"
