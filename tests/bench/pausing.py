"""What a pause costs, and how soon records come after it, by client."""

import statistics

from tests.bench.figures import Figure, median
from tests.bench.throughput import CLIENTS, LAPS, OURS, SMALL, STOCK
from tests.bench.workers import lapped

RESUMED = "500 records after resume"
TOGGLED = "pause, resume of one partition"
_RECORDS = 200_000  # more than a client has fetched when it pauses
_POLLS = 10_000


def resumed(stage):
    """Resume what was paused for half a second in the middle of a backlog."""
    topic = stage.filled(SMALL, max(2_400, _RECORDS // stage.sizes.scale))
    # The default: how long a request may still be under way when it is resumed.
    every = {"partitions": SMALL.partitions, "wait_ms": 500}
    kinds = {one: stage.reader(one, topic, **every) for one in CLIENTS}
    taken = lapped(kinds, "stop", rounds=stage.sizes.rounds, laps=LAPS)
    stage.drop(topic)
    for one in CLIENTS:
        waits = [seconds * 1e3 for seconds in taken["resumed"][one]]
        yield median("resumed", f"{RESUMED}, {one}", waits, "ms")
    for one in CLIENTS:
        calls = [round(seconds * 1e6, 2) for seconds in taken["toggled"][one]]
        most = 30.0 if one == OURS else None
        yield median("resumed", f"{TOGGLED}, {one}", calls, "us", at_most=most)


def asked(stage):
    """Pause and resume before each poll: how often metadata are asked for."""
    topic, polls = stage.topic(SMALL.partitions), _POLLS // stage.sizes.scale
    every = {"partitions": SMALL.partitions}
    kinds = {one: stage.reader(one, topic, **every) for one in (STOCK, OURS)}
    answers = lapped(kinds, "churn", rounds=1, laps=1, warm_up=None, polls=polls)
    stage.drop(topic)
    more = statistics.median(answers["updates"][OURS]) - answers["updates"][STOCK][0]
    name = f"metadata requests of {polls} polls, ours - {STOCK}"
    yield Figure("asked", name, more, "", at_most=0.0, rounds=answers["updates"])


ROWS = {"resumed": resumed, "asked": asked}
