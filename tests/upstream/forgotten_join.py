"""
kafka-python: a join that outlasts its poll is forgotten; two members work on the same.
"""

from safeconsumer.testing import EmbeddedBroker
from safeconsumer.testing.scenarios import SCENARIOS, STOCK, Setting, play


def shown() -> str | None:
    (scenario,) = (one for one in SCENARIOS if one.name == "forgotten-join")
    with EmbeddedBroker() as broker:
        counts = play(scenario, STOCK, Setting(broker=broker, report=_quiet)).counts
    said = f"{counts.duplicated} of {counts.produced} records delivered by two members"
    return said if counts.duplicated else None


def _quiet(progress: object) -> None:
    del progress
