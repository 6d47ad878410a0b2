"""The rows of the table "figures to reach", each measured against the stock client."""

import sys
import time
from collections.abc import Callable, Collection

from tests.bench import report
from tests.bench.figures import Figure
from tests.bench.rows.assigned import ten_thousand
from tests.bench.rows.imports import imports
from tests.bench.rows.pausing import all_paused, refetch, resume_latency
from tests.bench.rows.reading import (
    compiled_cpu,
    iteration_cpu,
    many_holds,
    poll_cpu,
    scraped_cpu,
)
from tests.bench.stage import Stage

ROWS: dict[str, Callable[[Stage], list[Figure]]] = {
    "poll": poll_cpu,
    "iteration": iteration_cpu,
    "ten-thousand": ten_thousand,
    "compiled": compiled_cpu,
    "many-holds": many_holds,
    "metrics": scraped_cpu,
    "refetch": refetch,
    "resume-latency": resume_latency,
    "all-paused": all_paused,
    "import": imports,
}


def run(stage: Stage, only: Collection[str], *, smoke: bool) -> dict[str, object]:
    """
    Measure the rows and return everything as plain JSON values.

    Args:
        stage: the broker and how much is measured.
        only: names of rows; none for all.
        smoke: say in the result that the sizes prove nothing.
    """
    start = time.monotonic()
    figures = []
    for name, row in ROWS.items():
        if only and name not in only:
            continue
        began = time.monotonic()
        figures.extend(row(stage))
        _tell(f"{name}: {time.monotonic() - began:.1f} s")
    seconds = time.monotonic() - start
    _tell(report.as_table(figures))
    return report.as_dict(
        figures, broker=stage.broker.kind, smoke=smoke, seconds=seconds
    )


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
