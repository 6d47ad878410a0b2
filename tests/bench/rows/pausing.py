"""What pausing costs in bytes fetched again, in waiting, and in doing nothing."""

from collections import defaultdict

from tests.bench.figures import Figure, percentile
from tests.bench.stage import Stage
from tests.bench.workers import Arm, arms

_PARTITIONS = 4
_VALUE = 500
_REFETCH = 1.05
_LATENCY_MS = 50.0
_CPU_PERCENT = 5.0
_WAYS = {
    "poll": "poll, one paused in turn",
    "all": "poll, all paused and resumed",
    "iterate": "iteration, one paused in turn",
}


def refetch(stage: Stage) -> list[Figure]:
    """Bytes fetched over bytes produced, with a pause and a resume every 10 records."""
    records = stage.sizes.toggled
    topic = stage.topic(_PARTITIONS, records=records, size=_VALUE)
    figures = []
    for how, name in _WAYS.items():
        kinds = {
            client: stage.arm("toggling", client, topic=topic, partitions=_PARTITIONS)
            for client in ("safe", "stock")
        }
        with arms(kinds) as started:
            safe = started["safe"].call("run", how=how, records=records, bound=60.0)
            stock = started["stock"].call(
                "run", how=how, records=records, bound=stage.sizes.stock_bound
            )
        if safe["delivered"] != records:
            message = f"{name}: {safe['delivered']} of {records} records delivered"
            raise ValueError(message)
        figures.append(
            Figure(
                row="refetch",
                name=name,
                measured=safe["fetched"] / safe["produced"],
                unit="x",
                at_most=_REFETCH,
                rounds={
                    "safe, bytes fetched": [safe["fetched"]],
                    "safe, bytes produced": [safe["produced"]],
                    "safe, seconds": [safe["seconds"]],
                    "stock, bytes fetched": [stock["fetched"]],
                    "stock, records delivered": [stock["delivered"]],
                    "stock, seconds": [stock["seconds"]],
                },
                note=f"bytes of records in Fetch answers; {records} records delivered; "
                f"the stock client was given {stage.sizes.stock_bound:g} s",
            )
        )
    stage.drop(topic)
    return figures


def resume_latency(stage: Stage) -> list[Figure]:
    """From ``resume`` on another thread to the return of a waiting ``poll(5000)``."""
    tries = stage.sizes.resumes
    topic = stage.topic(1, empty=1, records=tries + 200)
    figures = []
    waits = {False: "nothing in flight", True: "a fetch in flight"}
    for flowing, wait in waits.items():
        kinds = {
            client: stage.arm("parked", client, topic=topic, flowing=flowing)
            for client in ("safe", "stock")
        }
        with arms(kinds) as started:
            taken = {
                "safe": _milliseconds(started["safe"], stage, tries),
                "stock": _milliseconds(started["stock"], stage, max(1, tries // 20)),
            }
        figures.extend(
            Figure(
                row="resume-latency",
                name=f"resume ends poll, {wait}, p{percent}",
                measured=percentile(taken["safe"], percent),
                unit="ms",
                at_most=_LATENCY_MS if percent == 99 else None,
                rounds=taken,
                note="a try without a record counts as the whole time of the poll",
            )
            for percent in (50, 99)
        )
    stage.drop(topic)
    return figures


def all_paused(stage: Stage) -> list[Figure]:
    """Both clients side by side, everything paused, polling for a second each time."""
    polls = stage.sizes.idle_polls
    topic = stage.topic(_PARTITIONS, records=400)
    kinds = {
        client: stage.arm("idle", client, topic=topic, partitions=_PARTITIONS)
        for client in ("safe", "stock")
    }
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with arms(kinds) as started:
        for arm in started.values():
            arm.begin("poll", polls=polls)
        for client, arm in started.items():
            for what, value in arm.answer(polls * 3.0 + 30).items():
                taken[what][client].append(value)
    stage.drop(topic)
    wall = taken["wall"]["safe"][0]
    name = f"poll(1000) x {polls}, all paused"
    return [
        Figure(
            row="all-paused",
            name=f"{name}: wall",
            measured=wall,
            unit="s",
            at_least=polls * 29 / 30,
            at_most=polls * 31 / 30,
            rounds=taken["wall"],
        ),
        Figure(
            row="all-paused",
            name=f"{name}: CPU",
            measured=100 * taken["cpu"]["safe"][0] / wall,
            unit="%",
            at_most=_CPU_PERCENT,
            rounds=taken["cpu"],
            note="raw values in seconds",
        ),
        Figure(
            row="all-paused",
            name=f"{name}: fetches and records",
            measured=taken["fetches"]["safe"][0] + taken["records"]["safe"][0],
            unit="",
            at_most=0,
            rounds=taken["fetches"],
        ),
    ]


def _milliseconds(arm: Arm, stage: Stage, tries: int) -> list[float]:
    wait_ms = stage.sizes.resume_wait_ms
    bound = tries * (wait_ms / 1000 + 1) + 30
    answer = arm.call("resume", bound, tries=tries, wait_ms=wait_ms)
    return [round(one * 1000, 3) for one in answer["seconds"]]
