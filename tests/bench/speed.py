"""How fast all clients are, side by side; and the table of it that people read."""

import json
from pathlib import Path

from tests.bench import pausing, throughput, trickle
from tests.bench.throughput import CLIENTS, CPU, OURS, READING, SPEED
from tests.bench.trickle import P50, P99
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.processes import ROOT

ROUNDS = 2
ROWS = throughput.ROWS | trickle.ROWS | pausing.ROWS

DATA = Path(__file__).with_name("speed.json")
# What is told in its unit, of each client: its title, its row and its name in the report.
_VALUES = {
    "resumed": ("500 records after `resume`: ms", "resumed", pausing.RESUMED),
    "toggled": ("`pause`, `resume` of a partition: us", "resumed", pausing.TOGGLED),
    "p50": ("500 records/s one by one: p50 of latency, ms", "one-by-one", P50),
    "p99": ("500 records/s one by one: p99 of latency, ms", "one-by-one", P99),
    "cpu": (f"500 records/s one by one: {CPU}, us", "one-by-one", CPU),
    "thousand": (
        f"50 records/s one by one, of 1,000 partitions: {CPU}, us",
        "thousand",
        CPU,
    ),
}
README = ROOT / "README.md"  # without the clients' versions, which the other page has
# By page: which of these, and of the rows of reading, it has.
PAGES = {
    README: ("500", "10KB", "p50"),
    ROOT / "docs" / "explanation" / "speed.md": (*READING, *_VALUES),
}
_OTHERS = [one for one in CLIENTS if one != OURS]


def write(result):
    """Keep what the table needs of a report of ``speed``; write it into the pages."""
    DATA.write_text(json.dumps(kept(result), indent=1) + "\n", "utf-8")
    for page in PAGES:
        page.write_text(written(page, page.read_text("utf-8")), "utf-8")


def kept(result):
    """Return, of a report, what the table is made of."""
    versions = [
        f"{name} {result['versions'][name]}"
        for name in ("aiokafka", "confluent-kafka", "kafka-python")
    ]
    found = {(one["row"], one["name"]): one["measured"] for one in result["figures"]}
    return {
        "stamp": f"It was measured {result['date'][:10]}, on "
        f"{result['machine']['cores']} cores, "
        f"Python {result['versions']['python']}, Apache Kafka {KAFKA_VERSION}; "
        f"{', '.join(versions)}.",
        "ratios": {
            row: {
                client: _rounded(
                    found, {what: (row, f"{what} / {client}") for what in (SPEED, CPU)}
                )
                for client in _OTHERS
            }
            for row in READING
        },
        "values": {
            key: _rounded(found, {one: (row, f"{name}, {one}") for one in CLIENTS})
            for key, (_, row, name) in _VALUES.items()
        },
    }


def _rounded(found, names):
    return {name: round(found[key], 3) for name, key in names.items() if key in found}


def written(page, text):
    """Return a page's text with the table of the data; a dash is not measured."""
    data = json.loads(DATA.read_text("utf-8"))
    lines = [[f"ours / theirs: {SPEED}; {CPU}", *_OTHERS], ["---"] * (1 + len(_OTHERS))]
    for row in PAGES[page]:
        if row in READING:
            cells = [_ratios(data["ratios"][row][one]) for one in _OTHERS]
            lines.append([READING[row].title, *cells])
        else:
            said = data["values"][row]
            cells = [f"{_short(said, OURS)} / {_short(said, one)}" for one in _OTHERS]
            lines.append([_VALUES[row][0], *cells])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    stamp = data["stamp"]
    if page == README:
        stamp = f"{stamp.partition(';')[0]}."
    return put(
        text,
        "speed",
        f"{table}\n\n{stamp}",
        by="tests.bench speed --kafka=java",
    )


def _ratios(said):
    return "; ".join(
        f"{said[what]:.2f}" if what in said else "-" for what in (SPEED, CPU)
    )


def _short(said, client):
    """Return a value with two digits, or all before the point."""
    if client not in said:
        return "-"
    value = said[client]
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def put(page, name, text, by):
    """Return the page with this text between the marks of that name."""
    first, last = f"<!-- {name}: by python -m {by} --write -->", f"<!-- {name} -->"
    before, found, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not found or not end:
        message = f"the page lacks {first} or {last} after it"
        raise ValueError(message)
    return f"{before}{first}\n{text}\n{last}{after}"
