"""How fast all clients are, side by side; and the tables of it that people read."""

import json
from pathlib import Path

from tests.bench import pausing, throughput, trickle
from tests.bench.throughput import CLIENTS, CPU, OURS, READING, SPEED
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.processes import ROOT

ROUNDS = 2
ROWS = throughput.ROWS | trickle.ROWS | pausing.ROWS

DATA = Path(__file__).with_name("speed.json")
# By page: which rows of reading it has.
PAGES = {
    ROOT / "README.md": (
        *("500", "5000", "iteration", "deserializer", "alone"),
        *("1KB", "1KB-lz4", "10KB"),
    ),
    ROOT / "docs" / "explanation" / "speed.md": tuple(READING),
}

_OTHERS = [one for one in CLIENTS if one != OURS]
# By what a table calls it: its row and its name in the report; each has its unit.
_VALUES = {
    f"ms until {pausing.RESUMED}": ("resumed", pausing.RESUMED),
    f"us of {pausing.TOGGLED}": ("resumed", pausing.TOGGLED),
    **{
        f"{flow.rate:.0f} records/s one by one, {flow.partitions:,} partitions: {said}": (
            row,
            name,
        )
        for row, flow in trickle.FLOWS.items()
        for said, name in (
            ("ms from produced to returned, p50", "produced to returned, p50"),
            ("p99", "produced to returned, p99"),
            ("us of CPU per record", CPU),
        )
    },
}


def write(result):
    """Keep what the tables need of a report of ``speed``; write them into the pages."""
    DATA.write_text(json.dumps(kept(result), indent=1) + "\n", "utf-8")
    for page in PAGES:
        page.write_text(written(page, page.read_text("utf-8")), "utf-8")


def kept(result):
    """Return, of a report, what the tables are made of."""
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
            title: _rounded(found, {one: (row, f"{name}, {one}") for one in CLIENTS})
            for title, (row, name) in _VALUES.items()
        },
    }


def _rounded(found, names):
    return {name: round(found[key], 3) for name, key in names.items() if key in found}


def written(page, text):
    """Return a page's text with the tables of the data; a dash is not measured."""
    data = json.loads(DATA.read_text("utf-8"))
    reading = [
        [READING[row].title, *(_cell(data["ratios"][row], one) for one in _OTHERS)]
        for row in PAGES[page]
    ]
    values = [
        [title, *(_value(data["values"][title].get(one)) for one in CLIENTS)]
        for title in _VALUES
    ]
    tables = (
        _table([f"ours / theirs: {SPEED}; {CPU}", *_OTHERS], reading),
        _table(["", "safeconsumer", *_OTHERS], values),
    )
    return put(
        text,
        "speed",
        "\n\n".join((*tables, data["stamp"])),
        by="tests.bench speed --kafka=java",
    )


def _cell(ratios, client):
    said = ratios[client]
    return "; ".join(
        f"{said[what]:.2f}" if what in said else "-" for what in (SPEED, CPU)
    )


def _value(measured):
    return "-" if measured is None else f"{measured:,.3g}"


def _table(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def put(page, name, text, by):
    """Return the page with this text between the marks of that name."""
    first, last = f"<!-- {name}: by python -m {by} --write -->", f"<!-- {name} -->"
    before, found, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not found or not end:
        message = f"the page lacks {first} or {last} after it"
        raise ValueError(message)
    return f"{before}{first}\n{text}\n{last}{after}"
