"""Pausing one partition of ten thousand."""

import statistics
from collections import defaultdict

from tests.bench.figures import Figure, ratio_of_pairs
from tests.bench.stage import Stage
from tests.bench.workers import arms, in_turns

_MICROSECONDS = 100.0
_LIMIT = 1.1
_NOTE = (
    "on an embedded broker in another process: ten thousand partitions are more than "
    "a real broker on this machine carries, and what is measured is the client's CPU"
)

Seconds = dict[str, list[float]]


def ten_thousand(stage: Stage) -> list[Figure]:
    """``pause`` and ``resume`` of one partition, and the ``poll`` after each."""
    from safeconsumer.testing import EmbeddedBroker  # noqa: PLC0415 - only for this row

    count = stage.sizes.assigned
    taken: dict[str, Seconds] = defaultdict(lambda: defaultdict(list))
    with EmbeddedBroker() as broker:
        own = Stage(broker=broker, sizes=stage.sizes)
        topic = own.topic(count)
        kinds = {
            client: own.arm("assigned", client, topic=topic, partitions=count)
            for client in ("stock", "safe")
        }
        for _ in range(stage.sizes.rounds):
            with arms(kinds) as started:
                for lap in range(stage.sizes.laps):
                    for client in in_turns(list(started), lap):
                        for kind in ("toggle", "in_a_row"):
                            step = started[client].call(kind, trials=stage.sizes.trials)
                            for what, values in step.items():
                                taken[what][client].extend(values)
    return [
        *(
            _call(what, when, count, taken[key])
            for what in ("pause", "resume")
            for when, key in (("in a row", f"{what}_in_a_row"), ("between polls", what))
        ),
        _poll("that sends the fetch", count, taken["poll_sending"]),
        _poll("while one is in flight", count, taken["poll_waiting"]),
        _poll("draining as many empty answers", count, taken["drain"], None),
    ]


def _call(what: str, when: str, count: int, taken: Seconds) -> Figure:
    micros = _scaled(taken, 1e6)
    return Figure(
        row="ten-thousand",
        name=f"{what} of one partition {when}, {count} assigned",
        measured=statistics.median(micros["safe"]),
        unit="us",
        at_most=_MICROSECONDS,
        rounds=micros,
        note="median of all calls; between polls the processor's caches are cold",
    )


def _poll(
    what: str, count: int, taken: Seconds, at_most: float | None = _LIMIT
) -> Figure:
    return Figure(
        row="ten-thousand",
        name=f"the next poll {what}, {count} assigned",
        measured=ratio_of_pairs(taken["safe"], taken["stock"]),
        unit="x",
        at_most=at_most,
        rounds=_scaled(taken, 1e3),
        note=f"{_NOTE}; raw values in milliseconds",
    )


def _scaled(taken: Seconds, factor: float) -> Seconds:
    return {
        client: [round(one * factor, 2) for one in values]
        for client, values in taken.items()
    }
