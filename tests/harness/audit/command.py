"""Runs ``safeconsumer audit`` on journals of made-up fleets."""

import json

from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer


def run(*arguments):
    """Run the command; return its result."""
    return CliRunner().invoke(safeconsumer, ["audit", *map(str, arguments)])


def written(folder, fleet):
    """Write a journal for each process of a fleet; return the folder."""
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(fleet):
        (folder / f"{number}.journal").write_text(one.text())
    return folder


def rows_of(report):
    """Return the rows that ``--report`` wrote."""
    return [json.loads(line) for line in report.read_text().splitlines()]


def history_of(scope, start, end, group="g"):
    """Return the document of ``safeconsumer history -o json`` with one hold."""
    topic = {"topic": "holds", "complete_since": 900.0}
    record = {"group": group, "owner": "eve", "scope": scope}
    record |= {"covers": scope, "at": start, "is_held": True, "expires_at": end}
    record |= {"version": 1, "extra": [], "reset": None}
    document = {
        "group": None,
        "cluster": None,
        "until": 2_000_000_000.0,
        "topics": [{**topic, "timestamp_type": "LogAppendTime"}],
        "records": [record],
    }
    return json.dumps(document)
