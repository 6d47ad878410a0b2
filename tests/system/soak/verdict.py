"""Lets ``safeconsumer audit`` judge a soak, and counts the events in its journals."""

import json
import math
from collections import Counter

from safeconsumer.cli.errors import Status
from tests.harness.audit.journals import read
from tests.harness.processes import ran
from tests.harness.program import command

# A frozen broker and then a rebalance may delay the effect of a resume.
_PATIENCE = "60s"
_CLOCKS = "0.5s"  # all processes share one machine
_LIMIT = 3600.0


def write_history(settings, bootstrap):
    """Write the history of the group's holds to a file, after the operator has stopped."""
    where = ("--bootstrap", bootstrap, "-o", "json")
    ended = ran(*command("history", *where), timeout=_LIMIT, check=True)
    # The broker's time is known only from records, and the stopped operator writes no
    # more records. The history therefore counts as complete up to any time.
    document = {**json.loads(ended.stdout), "until": math.inf}
    settings.history.write_text(json.dumps(document))


def judged(settings, done):
    """Return the result of a soak; also write the result and the audit's report to files."""
    status, rows = _audited(settings)
    violations = Counter()
    for row in rows:
        violations[row["check"]] += row["violations"]
    troubles = [f"{name} ended by itself" for name in done["crashed"]]
    troubles += [f"{name} did not leave in time" for name in done["stuck"]]
    troubles += [
        f"{row['check']} of {row['topic']}:{row['partition']}: {row['unjudged']}"
        for row in rows
        if row["unjudged"]
    ]
    if status == Status.DONE and (troubles or done["left"]):
        status = Status.USAGE
    result = {
        **done,
        **_figures(settings.journals),
        "violations": dict(sorted(violations.items())),
        "violations_total": violations.total(),
        "unknown": troubles,
        "status": int(status),
    }
    (settings.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


def _audited(settings):
    """Run the audit on the journals; return its exit status and the report's rows."""
    report = settings.out / "report.jsonl"
    arguments = [str(settings.journals), "--drained", "--report", str(report)]
    arguments += ["--patience", _PATIENCE, "--clock-skew", _CLOCKS]
    if settings.history.exists():
        arguments += ["--history", str(settings.history)]
    ended = ran(*command("audit", *arguments), timeout=_LIMIT)
    (settings.out / "audit.txt").write_text(ended.stdout + ended.stderr)
    return ended.returncode, [*map(json.loads, report.read_text().splitlines())]


def _figures(folder):
    counts, faults, errors = Counter(), Counter(), Counter()
    rebalances = 0
    lines = (entry for path in folder.glob("*.journal") for entry in read(path).lines)
    for entry in lines:
        match entry.event:
            case "acked":
                counts["acknowledged"] += entry["last"] - entry["first"] + 1
            case "deliver":
                counts["delivered"] += entry["count"]
            case "assigned":
                counts["ownerships"] += len(entry["partitions"])
                rebalances = max(rebalances, entry["generation"] or 0)
            case "return":
                counts[entry["op"]] += entry["ok"] is not False
            case "fault":
                faults[entry["kind"]] += 1
            case "error":
                errors[entry["what"].partition(":")[0]] += 1
    return {
        **dict(sorted(counts.items())),
        "pairs": min(counts["pause"], counts["resume"]),
        "rebalances": rebalances,
        "faults": dict(sorted(faults.items())),
        "faults_total": faults.total(),
        "errors": dict(sorted(errors.items())),
    }
