"""Runs ``safeconsumer audit`` on journals of made-up fleets."""

import json

from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer


def run(*arguments):
    """Run ``safeconsumer audit``; return the command's result."""
    return CliRunner().invoke(safeconsumer, ["audit", *map(str, arguments)])


def written(folder, fleet):
    """Write a journal for each process of a fleet; return the folder."""
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(fleet):
        (folder / f"{number}.journal").write_text(one.text())
    return folder


def rows_of(report):
    """Return the rows that the audit wrote to the file that ``--report`` names."""
    return [json.loads(line) for line in report.read_text().splitlines()]


def history_of(scope, start, end, group="g"):
    """Return a document with one hold, as ``safeconsumer history -o json`` prints it."""
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
