"""Measures group control: the delay until a hold takes effect, and the cost of many holds."""

import time

from safeconsumer.events.consumer import HoldsPlaced, HoldsRemoved
from safeconsumer.group import report_wire, wire
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import changes, new_hold
from safeconsumer.group.report_wire import Report
from tests.bench.figures import median, percentiles
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

_HOLDS = 10_000
_MEMBERS = 1_000
_PAUSE = 0.03  # seconds between two tries


def obeying(stage):
    """Measure the time from the broker's acknowledgement of a hold to its effect."""
    times = {HoldsPlaced: [], HoldsRemoved: []}

    def note(event):
        if type(event) in times:
            times[type(event)].append(time.monotonic())

    def wait_for_next(kind):
        wait_for(lambda: times[kind], kind.__name__, pause=0.001)
        return times[kind].pop()

    delays = []
    with (
        Team(stage.broker, partitions=4, records=1) as team,
        Polled(team.ready(hooks=(note,))),
    ):
        for _ in range(stage.sizes.tries):
            team.operator_holds("@all")
            acknowledged = time.monotonic()
            obeyed = wait_for_next(HoldsPlaced)
            delays.append(max(0.0, obeyed - acknowledged) * 1000)
            team.operator_lifts("@all")
            wait_for_next(HoldsRemoved)
            time.sleep(_PAUSE)
    name, note = "a member waiting in poll", "acknowledged to obeyed"
    yield from percentiles("obeying", name, delays, {50: 5.0, 99: 50.0}, note)


def starting(stage):
    """Measure the time to a member's first record, with many holds on the holds topic."""
    count = _HOLDS // stage.sizes.scale
    with Team(stage.broker, partitions=4, records=5) as team:
        scopes = (f"elsewhere-{n // 100}:{n % 100}" for n in range(count))
        for one in changes(team.group, "bench", scopes, new_hold("bench", None)):
            key, value = wire.encode_key(one.key), wire.encode_hold(one.hold)
            team.producer.send(
                team.settings.holds_topic, key=key, value=value, partition=0
            )
        team.producer.flush(60)
        seconds = {"with": [], "without": []}
        for _ in range(2 + stage.sizes.rounds):
            seconds["with"].append(_first_record(team))
            seconds["without"].append(_first_record(team, control=None))
    name = f"first record with {count} holds on the topic"
    yield median("starting", name, seconds["with"], "s", at_most=0.6)
    name = "the same without control="
    yield median("starting", name, seconds["without"], "s")


def _first_record(team, **settings):
    began = time.monotonic()
    consumer = team.subscribed(**settings)
    wait_for(lambda: consumer.poll(200), "a record", pause=0)
    seconds = time.monotonic() - began
    consumer.close()
    return seconds


def reporting(stage):
    """Measure how long a ``status`` call takes if a thousand members have sent reports."""
    with Team(stage.broker) as team:
        topic = str(team.settings.status_topic)
        assigned = {team.topic: ((0, 3),)}
        for _ in range(5):  # five reports from each member
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
                value = report_wire.encode_report(one)
                team.producer.send(topic, key=key, value=value, partition=0)
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
    note = "5 reports of each on the topic; with all requests of one status call"
    yield median("reporting", name, seconds, "s", at_most=2.0, note=note)


ROWS = {
    "obeying": obeying,
    "starting": starting,
    "reporting": reporting,
}
