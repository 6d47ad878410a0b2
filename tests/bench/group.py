"""Group control in figures: how soon a hold is obeyed, and what the barrier costs."""

import json
import threading
import time
from contextlib import contextmanager

from safeconsumer.group import report_wire, wire
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import changes, new_hold
from safeconsumer.group.report_wire import Report
from tests.bench.figures import Figure, median, percentiles
from tests.harness.group.team import Team
from tests.harness.processes import Process, module
from tests.harness.waiting import wait_for

_PAUSE = 0.03
_HOLDS = 10_000
_MEMBERS = 1_000


@contextmanager
def member(team, **options):
    """Run a member process; yield what it says, growing."""
    settings = team.settings
    given = {
        "topic": team.topic,
        "group": team.group,
        "busy": False,
        "seconds": 120,
        "client": {**team.broker.client_config, **team.broker.group_config},
        "control": {
            "holds_topic": settings.holds_topic,
            "status_topic": settings.status_topic,
            "trust_topic": settings.trust_topic,
            "client_configs": dict(settings.client_configs),
        },
        **options,
    }
    command = module("tests.bench.arms.group_member", json.dumps(given))
    with Process(command, read=json.loads) as process:
        yield process.lines


def _until(condition):
    wait_for(condition, "what a member says", 60.0, pause=0.001)


def _events(said, name):
    return [one["at"] for one in tuple(said) if one.get("event") == name]


# ---------------------------------------------------------------- rows


def obeying(stage):
    """From the broker's acknowledgement to the moment after which nothing is delivered."""
    note = "acknowledged to obeyed: the last record is not later"
    for busy, limit in ((False, 5.0), (True, 15.0)):
        name = "a busy member" if busy else "a member waiting in poll"
        delays, lasts = _delays(stage, busy=busy)
        yield from percentiles("obeying", name, delays, {50: limit, 99: 50.0}, note)
        note = "after the acknowledgement; 1,000 records/s"
        latest = max(lasts, default=0.0)
        yield Figure("obeying", f"{name}, last record, latest", latest, "ms", note=note)


def _delays(stage, *, busy):
    delays, lasts = [], []
    with Team(stage.broker, partitions=4, records=1) as team:
        over = threading.Event()
        feeder = threading.Thread(target=_feed, args=(team, over))
        feeder.start()
        try:
            with member(team, busy=busy) as said:
                _until(lambda: any("records" in one for one in said))
                for _ in range(stage.sizes.tries):
                    before = len(_events(said, "hold_placed"))
                    team.operator_holds("@all")
                    acknowledged = time.monotonic()
                    _until(lambda: len(_events(said, "hold_placed")) > before)  # noqa: B023 - used at once
                    obeyed = _events(said, "hold_placed")[-1]
                    delays.append(max(0.0, obeyed - acknowledged) * 1000)
                    time.sleep(_PAUSE)
                    late = [
                        one["at"] - acknowledged
                        for one in tuple(said)
                        if "records" in one and one["at"] > acknowledged
                    ]
                    lasts += [max(late) * 1000] if late else []
                    lifted = len(_events(said, "hold_removed"))
                    team.operator_lifts("@all")
                    _until(lambda: len(_events(said, "hold_removed")) > lifted)  # noqa: B023 - used at once
        finally:
            over.set()
            feeder.join()
    return delays, lasts


def _feed(team, over):
    while not over.wait(0.01):
        for _ in range(10):
            team.producer.send(team.topic, b"x")


def starting(stage):
    """From the constructor to the first record, with many holds on the topic."""
    count = _HOLDS // stage.sizes.scale
    with Team(stage.broker, partitions=4, records=5) as team:
        sent = changes(
            team.group,
            "bench",
            (f"elsewhere-{n // 100}:{n % 100}" for n in range(count)),
            new_hold("bench", None),
        )
        topic = team.settings.holds_topic
        futures = [
            team.producer.send(
                topic,
                key=wire.encode_key(one.key),
                value=wire.encode_hold(one.hold or new_hold(None, None)),
                partition=0,
            )
            for one in sent
        ]
        for one in futures:
            one.get(60)
        rounds = {"with": [], "without": []}
        for _ in range(2 + stage.sizes.rounds):
            rounds["with"].append(_first_record(team))
            rounds["without"].append(_first_record(team, control=None))
    name = f"first record with {count} holds on the topic"
    note = "a new process and a new group"
    with_, without = rounds["with"], rounds["without"]
    yield median("starting", name, with_, "s", at_most=0.6, note=note)
    yield median("starting", "the same without control=", without, "s", note=note)


def _first_record(team, **options):
    with member(team, **options) as said:
        _until(lambda: any("first" in one for one in said))
        first = next(one["first"] for one in said if "first" in one)
    time.sleep(2.5)  # until the group has forgotten a member that was killed
    return first


def reporting(stage):
    """Read what a thousand members report."""
    with Team(stage.broker) as team:
        topic = str(team.settings.status_topic)
        assigned = {team.topic: ((0, 3),)}
        for _ in range(5):  # one interval after another, as members do
            for number in range(_MEMBERS):
                one = Report(
                    group=team.group,
                    member=f"member-{number}",
                    client_id=f"client-{number}",
                    host="host",
                    at_ms=int(time.time() * 1000),
                    applied={team.settings.holds_topic: 0},
                    assigned=assigned,
                    quiet=assigned,
                )
                key = report_wire.encode_report_key(team.group, one.member)
                team.producer.send(
                    topic, key=key, value=report_wire.encode_report(one), partition=0
                )
        team.producer.flush(60)
        seconds = []
        for _ in range(5):
            with Operator(team.broker.client_config, team.settings) as operator:
                began = time.monotonic()
                found = operator.look(team.group).reports
                if stage.broker.kind != "embedded":
                    operator.group(team.group)
                operator.holds(team.group)
                seconds.append(time.monotonic() - began)
                assert len(found) == _MEMBERS
    name = f"status of {_MEMBERS} members"
    note = "5 reports of each on the topic; all that one status call asks for"
    yield median("reporting", name, seconds, "s", at_most=2.0, note=note)


ROWS = {
    "obeying": obeying,
    "starting": starting,
    "reporting": reporting,
}
