"""What came of it: the checker's verdict, and the figures, all from the journals."""

import os
import platform
import resource
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from safeconsumer.audit.report import rows_of
from safeconsumer.errors import JournalError
from safeconsumer.holds.scope import parse
from tests.harness.audit.journals import check, read
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.processes import ran

# Seconds: a resume may fall into a frozen broker, a blackhole and a rebalance in a row.
PATIENCE = 60.0


def journals_of(folder):
    """Return the journals of a folder, and what is wrong with the others."""
    found = []
    troubles = []
    for path in sorted(folder.glob("*.journal")):
        try:
            found.append(read(path))
        except JournalError as error:
            troubles.append(str(error))
    return found, troubles


def judged(journals, assumed):
    """Return the checker's rows, and how often records came while their level was held."""
    found = check(journals, assumed)
    rows = [row for verdict in found.values() for row in rows_of(verdict)]
    levels = Counter(
        _level(finding.evidence)
        for verdict in found.values()
        for finding in verdict.findings
        if finding.check == "A1"
    )
    return tuple(rows), dict(sorted(levels.items()))


def _level(evidence):
    # The evidence of A1 ends in: while soak-orders:3 was held by app.
    scope = parse(evidence.rpartition(" while ")[2].partition(" was held by ")[0])
    return type(scope).__name__.lower()


def violations(rows):
    """Return how often each check was broken."""
    counts = Counter()
    for row in rows:
        counts[row.check] += row.violations
    return dict(sorted(counts.items()))


def figures(journals):
    counts = Counter()
    faults = Counter()
    errors = Counter()
    rebalances = 0
    for entry in (entry for one in journals for entry in one.lines):
        if entry.event in _COUNTED:
            name, more = _COUNTED[entry.event](entry)
            counts[name] += more
        if entry.event == "fault":
            faults[entry["kind"]] += 1
        elif entry.event == "error":
            errors[entry["what"].partition(":")[0]] += 1
        elif entry.event == "assigned":
            rebalances = max(rebalances, entry["generation"] or 0)
    return {
        **dict(sorted(counts.items())),
        "pairs": min(counts["pause"], counts["resume"]),
        "rebalances": rebalances,
        "faults": dict(sorted(faults.items())),
        "faults_total": sum(faults.values()),
        "errors": dict(sorted(errors.items())),
    }


_COUNTED = {
    "acked": lambda entry: ("acknowledged", entry["last"] - entry["first"] + 1),
    "deliver": lambda entry: ("delivered", entry["count"]),
    "assigned": lambda entry: ("ownerships", len(entry["partitions"])),
    "return": lambda entry: (entry["op"], int(entry["ok"] is not False)),
}


def cpu_seconds():
    """Return how long this process and all that it started have computed."""
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return round(sum(one.ru_utime + one.ru_stime for one in used))


def machine():
    return {
        "python": sys.version.split()[0],
        "kafka-python": version("kafka-python"),
        "safeconsumer": version("safeconsumer"),
        "commit": commit(),
        "kafka": KAFKA_VERSION,
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }


def commit():
    """Return the commit of the working tree, ``-dirty`` if there is more; None: no git."""
    here = Path(__file__).resolve().parent
    try:
        describe = ("git", "describe", "--always", "--dirty", "--abbrev=12")
        said = ran(*describe, cwd=here, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None  # no clone, or no git
    return said.stdout.strip()
