"""Writes the table of speed, out of one run of ``throughput``, where people read it."""

import json
from pathlib import Path

from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.processes import ROOT

DATA = Path(__file__).with_name("speed.json")
PAGES = (ROOT / "README.md", ROOT / "docs" / "explanation" / "speed.md")

# By what the table calls it: the row of the report.
_ROWS = {
    "`poll(max_records=5000)`": "8 x 100 B, none, poll(max_records=5000)",
    "`poll()`": "8 x 100 B, none, poll(max_records=500)",
    "iteration": "8 x 100 B, none, iteration",
    "1 KB, lz4, `poll(max_records=5000)`": "8 x 1000 B, lz4, poll(max_records=5000)",
}
# One that is tuned has two ways to read; a row has one of them.
_CLIENTS = {
    "kafka-python": ("kafka-python",),
    "aiokafka": ("aiokafka",),
    "confluent-kafka, tuned": ("confluent consume tuned", "confluent poll tuned"),
}
_WHAT = ("records/s", "CPU per record")


def write(result):
    """Keep what the table needs of a report of ``throughput``; write it into the pages."""
    DATA.write_text(json.dumps(kept(result), indent=1) + "\n", "utf-8")
    for page in PAGES:
        page.write_text(written(page.read_text("utf-8")), "utf-8")


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
            title: {
                name: {
                    what: round(found[row, f"{what} / {client}"], 3)
                    for what in _WHAT
                    for client in clients
                    if (row, f"{what} / {client}") in found
                }
                for name, clients in _CLIENTS.items()
            }
            for title, row in _ROWS.items()
        },
    }


def written(page):
    """Return a page with the table of the data; what was not measured is a dash."""
    data = json.loads(DATA.read_text("utf-8"))
    lines = [
        [f"ours / theirs: {'; '.join(_WHAT)}", *_CLIENTS],
        ["---"] * (1 + len(_CLIENTS)),
    ]
    for title, ratios in data["ratios"].items():
        lines.append([title, *(_cell(ratios[name]) for name in _CLIENTS)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return put(
        page,
        "speed",
        f"{table}\n\n{data['stamp']}",
        by="tests.bench throughput --kafka=java",
    )


def _cell(ratios):
    return "; ".join(f"{ratios[what]:.2f}" if what in ratios else "-" for what in _WHAT)


def put(page, name, text, by):
    """Return the page with this text between the marks of that name."""
    first, last = f"<!-- {name}: by python -m {by} --write -->", f"<!-- {name} -->"
    before, found, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not found or not end:
        message = f"the page lacks {first} or {last} after it"
        raise ValueError(message)
    return f"{before}{first}\n{text}\n{last}{after}"
