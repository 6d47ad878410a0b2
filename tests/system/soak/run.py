"""One soak from the first broker to the verdict."""

import contextlib
import importlib
import json
import time
from contextlib import ExitStack, nullcontext

from safeconsumer import SafeConsumer
from safeconsumer.audit.control import from_history
from safeconsumer.audit.report import CLEAN, UNKNOWN, VIOLATED
from safeconsumer.audit.results import Settings as Assumptions
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.journal.writer import JournalWriter
from tests.harness.brokers.cluster import Cluster
from tests.system.soak import verdict
from tests.system.soak.faults import Stage
from tests.system.soak.fleet import Fleet, Program
from tests.system.soak.nemesis import Nemesis
from tests.system.soak.operator import Operating
from tests.system.soak.settings import HISTORY, TOPICS
from tests.system.soak.topics import Topics

_TURN = 0.1
_SAY_EVERY = 10.0
_DRAIN = 120.0
_TRIES = 3


def soak(settings):
    """Run it; return the result, which also stands in ``result.json``."""
    settings.journals.mkdir(parents=True)
    settings.logs.mkdir(parents=True)
    began = time.time()
    done = _Soak(settings).run()
    result = {
        "consumer": settings.consumer,
        "seed": settings.seed,
        "assignor": settings.assignor,
        "workers": settings.workers if settings.is_ours else 0,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        **done,
        "cpu_seconds": verdict.cpu_seconds(),
        "versions": verdict.machine(),
    }
    result = _judged(settings, result)
    trace(settings, settings.out / "trace.json", verdict.PATIENCE)
    return result


def _judged(settings, done):
    journals, troubles = verdict.journals_of(settings.journals)
    history, papers = settings.history, settings.out
    control = from_history(HISTORY, history.read_text()) if history.exists() else None
    assumed = Assumptions(patience=verdict.PATIENCE, is_drained=True, control=control)
    rows, levels = verdict.judged(journals, assumed)
    broken = verdict.violations(rows)
    total = sum(broken.values())
    troubles += [
        f"{row.check} of {row.topic}:{row.partition} not judged: {row.unjudged}"
        for row in rows
        if row.unjudged
    ]
    troubles += [f"{name} ended by itself" for name in done["crashed"]]
    troubles += [f"{name} did not leave in time" for name in done["stuck"]]
    result = {
        **done,
        **verdict.figures(journals),
        "group_holds": 0 if control is None else len(control.spans),
        "violations": broken,
        "violations_total": total,
        "delivered_while_held": levels,
        "unknown": troubles,
        "status": _status(total, troubles, done["left"]),
    }
    (papers / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [json.dumps(row.as_dict()) + "\n" for row in rows if row.violations]
    (papers / "violations.jsonl").write_text("".join(lines))
    return result


def trace(settings, output, patience):
    """Write a trace of one topic."""
    told = ["audit", str(settings.journals), "--perfetto", str(output)]
    told += ["--partition", TOPICS[0], "--patience", str(patience)]
    if settings.history.exists():
        told += ["--history", str(settings.history)]
    safeconsumer.main(told, standalone_mode=False)


def _status(broken, troubles, left):
    if broken:
        return VIOLATED
    return UNKNOWN if troubles or left else CLEAN


class _Soak:
    def __init__(self, settings):
        self._settings = settings
        module, _, name = settings.consumer.rpartition(".")
        self._kind = getattr(importlib.import_module(module), name)

    def run(self):
        settings = self._settings
        with ExitStack() as stack:
            self._say("starting brokers")
            cluster = _started(stack)
            topics = Topics(cluster.bootstrap)
            stack.callback(topics.close)
            topics.create_all()
            producer = self._producer(cluster.bootstrap)
            stack.callback(producer.end)
            made = Fleet(settings, cluster.bootstrap, self._kind)
            fleet = stack.enter_context(made)
            stage = Stage(cluster=cluster, fleet=fleet, topics=topics)
            minutes = self._churn(stage, producer)
            return {**self._drained(stage, producer), "minutes": round(minutes, 2)}

    def _producer(self, bootstrap):
        options = {
            "bootstrap": bootstrap,
            "rate": self._settings.rate,
            "journals": str(self._settings.journals),
        }
        return Program(
            "tests.system.soak.producer", "producer", options, self._settings.logs
        )

    def _churn(self, stage, producer):
        settings = self._settings
        journal = JournalWriter(settings.journals, member="nemesis")
        operating = (
            Operating(settings, stage.cluster.bootstrap)
            if issubclass(self._kind, SafeConsumer)
            else nullcontext()
        )
        began = time.monotonic()
        end, say_at = began + 60 * settings.minutes, began
        nemesis = Nemesis(stage, journal, settings.seed, began)
        with operating, ExitStack() as healing:
            healing.callback(
                nemesis.heal_all
            )  # first: who operates lifts its holds then
            while (now := time.monotonic()) < end:
                if settings.faults is not None and nemesis.total >= settings.faults:
                    break
                nemesis.turn(now)
                stage.fleet.tend()
                if now >= say_at:
                    say_at = now + _SAY_EVERY
                    self._progress(now - began, nemesis, stage, producer)
                time.sleep(_TURN)
        return (time.monotonic() - began) / 60

    def _progress(self, seconds, nemesis, stage, producer):
        records = producer.last("acknowledged") or 0
        self._say(
            f"{seconds / 60:5.1f} min  {records:8,} records  {nemesis.total:4} faults  "
            f"members {' '.join(stage.fleet.names())}  "
            f"now {' '.join(sorted(stage.busy)) or '-'}"
        )

    def _drained(self, stage, producer):
        self._say("draining")
        stage.fleet.drain()
        producer.end(90.0)
        left = stage.topics.wait_until_drained(_DRAIN)
        stage.fleet.tend()
        stage.fleet.end()
        unanswered = producer.last("unanswered")
        return {
            "left": left,
            "unanswered": unanswered,
            "crashed": stage.fleet.crowd.crashed,
            "stuck": stage.fleet.crowd.stuck,
        }

    def _say(self, line):
        print(f"soak: {line}", flush=True)  # noqa: T201 - for who waits


def _started(stack):
    # Ports were free when they were chosen; somebody may take one before a broker does.
    for _ in range(_TRIES - 1):
        with contextlib.suppress(RuntimeError):
            return stack.enter_context(Cluster())
    return stack.enter_context(Cluster())
