"""One run from the first worker to the verdict."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from safeconsumer.audit.checker import Settings as Assumptions
from safeconsumer.audit.journal import Journal
from safeconsumer.audit.report import CLEAN, UNKNOWN, VIOLATED
from tests.system.churn.crew import Crew
from tests.system.churn.feed import Feed, letters
from tests.system.churn.order import overtaken
from tests.system.churn.settings import GROUP, SCOPES, Settings
from tests.system.churn.topics import Topics
from tests.system.soak import verdict
from tests.system.soak.operator import Operating

_TURN = 0.1
_SAY_EVERY = 15.0
_FLOORS = 90.0
_DRAIN = 150.0
# Seconds in which a hold reaches a member, and a resume its records (L1): the machine
# may have other things to do.
_PATIENCE = 15.0


def churn(settings: Settings, bootstrap: str) -> dict[str, Any]:
    """Run it; return the result, which also stands in ``result.json``."""
    settings.journals.mkdir(parents=True)
    settings.logs.mkdir(parents=True)
    began = time.time()
    done = _run(settings, bootstrap)
    journals, troubles = verdict.journals_of(settings.journals)
    assumed = Assumptions(patience=_PATIENCE, is_drained=True)
    rows, _ = verdict.judged(journals, assumed)
    broken = verdict.violations(rows)
    troubles += [f"{name} ended by itself" for name in done["crashed"]]
    troubles += [f"{name} did not leave in time" for name in done["stuck"]]
    # How soon a resumed partition goes on depends on what else the machine does.
    unsafe = sum(broken.values()) - broken["L1"] + done["undead"] + done["strays"]
    disorder = overtaken(journals)
    unsafe += len(disorder)
    result = {
        "seed": settings.seed,
        "protocol": "cooperative" if settings.is_cooperative else "eager",
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        **done,
        **figures(journals),
        "violations": broken,
        "overtaken": disorder,
        "unknown": troubles,
        "versions": verdict.machine(),
        "status": _status(unsafe, troubles, done["left"]),
    }
    (settings.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [json.dumps(row.as_dict()) + "\n" for row in rows if row.violations]
    (settings.out / "violations.jsonl").write_text("".join(lines))
    return result


def _status(unsafe: int, troubles: list[str], left: dict[int, int]) -> int:
    if unsafe:
        return VIOLATED
    return UNKNOWN if troubles or left else CLEAN


def _run(settings: Settings, bootstrap: str) -> dict[str, Any]:
    topics = Topics(bootstrap)
    topics.create_all()
    with Crew(settings, bootstrap) as crew:
        topics.wait_for_floors(_FLOORS)
        with Feed(settings, bootstrap) as feed:
            operating = Operating(settings, bootstrap, group=GROUP, scopes=SCOPES)
            with operating:
                minutes = _come_and_go(settings, crew, feed)
            crew.fill()
        _say(f"draining what is left of {feed.acknowledged.count:,}")
        left = topics.wait_until_drained(_DRAIN)
        crew.tend()
        crew.end()
    found = letters(bootstrap)
    return {
        "minutes": round(minutes, 2),
        "produced": feed.acknowledged.count,
        "not_produced": feed.lost,
        "operator_holds": operating.pairs,
        "departures": crew.departures,
        "left": left,
        "crashed": crew.crowd.crashed,
        "stuck": crew.crowd.stuck,
        "letters": found.total(),
        "letters_repeated": found.total() - len(found),
        "undead": len(feed.doomed - found.keys()),
        "strays": len(found.keys() - feed.doomed),
    }


def _come_and_go(settings: Settings, crew: Crew, feed: Feed) -> float:
    began = say_at = time.monotonic()
    crew.begin()
    while (now := time.monotonic()) < began + 60 * settings.minutes:
        crew.turn()
        if now >= say_at:
            say_at = now + _SAY_EVERY
            minutes = (now - began) / 60
            _say(f"{minutes:5.1f} min  {feed.acknowledged.count:8,}  {crew.departures}")
        time.sleep(_TURN)
    return (time.monotonic() - began) / 60


def _say(line: str) -> None:
    print(f"churn: {line}", flush=True)  # noqa: T201 - for who waits


def figures(journals: Iterable[Journal]) -> dict[str, int]:
    """Return how much the workers did, by their journals."""
    counts: Counter[str] = Counter()
    ends: Counter[tuple[str, str, int]] = Counter()
    generation = 0
    for entry in (entry for one in journals for entry in one.entries):
        if entry.event == "handle":
            counts["starts"] += 1
        elif entry.event == "handled" and not entry["ok"]:
            counts["failures"] += 1
        elif entry.event == "handled":
            ends["done", entry["tp"], entry["offset"]] += 1
        elif entry.event == "completed":
            ends["dead", entry["tp"], entry["offset"]] += 1
        elif entry.event == "return" and entry["op"] == "pause":
            own = entry["owner"].startswith("worker:")
            counts["worker_holds" if own else "program_holds"] += 1
        elif entry.event == "assigned":
            counts["ownerships"] += len(entry["partitions"])
            generation = max(generation, entry["generation"] or 0)
        elif entry.event == "lost":
            counts["ownerships_lost"] += len(entry["partitions"])
    done = [many for (what, *_), many in ends.items() if what == "done"]
    dead = [many for (what, *_), many in ends.items() if what == "dead"]
    return {
        **dict(sorted(counts.items())),
        "generations": generation,
        "done": len(done),
        "done_again": sum(done) - len(done),
        "dead_lettered": len(dead),
        "dead_lettered_again": sum(dead) - len(dead),
    }
