"""The audit's verdict on a soak, and its figures, all from the journals."""

import json
from collections import Counter
from pathlib import Path

from safeconsumer.audit.control import from_history
from safeconsumer.audit.report import CLEAN, UNKNOWN, VIOLATED, rows_of
from safeconsumer.audit.results import Settings as Assumptions
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.errors import JournalError
from safeconsumer.holds.scope import parse
from tests.harness.audit.journals import check, read
from tests.system.soak.settings import TOPICS

# Seconds: a resume may fall into a frozen broker and a rebalance in a row.
PATIENCE = 60.0


def judged(settings, done):
    """Return the result of a soak; write it, its violations and a trace of one topic."""
    journals, troubles = _read(settings.journals)
    history = settings.history
    control = (
        from_history(history.name, history.read_text()) if history.exists() else None
    )
    assumed = Assumptions(patience=PATIENCE, is_drained=True, control=control)
    verdicts = check(journals, assumed).values()
    rows = [row for verdict in verdicts for row in rows_of(verdict)]
    violations = Counter()
    for row in rows:
        violations[row.check] += row.violations
    troubles += [
        f"{row.check} of {row.topic}:{row.partition} not judged: {row.unjudged}"
        for row in rows
        if row.unjudged
    ]
    troubles += [f"{name} ended by itself" for name in done["crashed"]]
    troubles += [f"{name} did not leave in time" for name in done["stuck"]]
    unknown = UNKNOWN if troubles or done["left"] else CLEAN
    result = {
        **done,
        **_figures(journals),
        "group_holds": 0 if control is None else len(control.spans),
        "violations": dict(sorted(violations.items())),
        "violations_total": violations.total(),
        "delivered_while_held": _leaks(verdicts),
        "unknown": troubles,
        "status": VIOLATED if violations.total() else unknown,
    }
    (settings.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [json.dumps(row.as_dict()) + "\n" for row in rows if row.violations]
    (settings.out / "violations.jsonl").write_text("".join(lines))
    _write_trace(settings)
    return result


def _read(folder):
    """Return the journals of a folder, and the faults of unreadable ones."""
    found, troubles = [], []
    for path in sorted(Path(folder).glob("*.journal")):
        try:
            found.append(read(path))
        except JournalError as error:
            troubles.append(str(error))
    return found, troubles


def _leaks(verdicts):
    """Return the number of records delivered under a hold, by the kind of its scope."""
    # The evidence of A1 ends in: while soak-orders:3 was held by app.
    scopes = [
        finding.evidence.rpartition(" while ")[2].partition(" was held by ")[0]
        for verdict in verdicts
        for finding in verdict.findings
        if finding.check == "A1"
    ]
    return dict(Counter(type(parse(scope)).__name__.lower() for scope in scopes))


def _write_trace(settings):
    arguments = ["audit", str(settings.journals), "--partition", TOPICS[0]]
    arguments += ["--perfetto", str(settings.out / "trace.json")]
    arguments += ["--patience", str(PATIENCE)]
    if settings.history.exists():
        arguments += ["--history", str(settings.history)]
    safeconsumer.main(arguments, standalone_mode=False)


def _figures(journals):
    counts, faults, errors = Counter(), Counter(), Counter()
    rebalances = 0
    for entry in (entry for one in journals for entry in one.lines):
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
