"""What importing the safe consumer costs over importing the stock one."""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping

from tests.bench.figures import Figure, ratio_of_pairs
from tests.bench.stage import Stage

_LIMIT = 1.25
_TIMEOUT = 60.0
_SCRIPT = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); "
    "{statement}; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)
_STOCK = "from kafka import KafkaConsumer"
_SAFE = "from safeconsumer import KafkaConsumer"
# Imports next to nothing by itself: the names are imported when they are asked for.
_PACKAGE = "import safeconsumer"

Seconds = dict[str, list[float]]


def imports(stage: Stage) -> list[Figure]:
    """Import in fresh interpreters, in turns; compiled files are there already."""
    wall: Seconds = defaultdict(list)
    cpu: Seconds = defaultdict(list)
    statements = [_STOCK, _SAFE, _PACKAGE]
    for statement in statements:
        import_seconds(statement)
    for lap in range(stage.sizes.imports):
        for statement in statements if lap % 2 else reversed(statements):
            one = import_seconds(statement)
            wall[statement].append(one[0])
            cpu[statement].append(one[1])
    return [
        # An import waits for nothing: what wall has on top is what else runs here.
        _ratio(_SAFE, cpu, "CPU", _LIMIT),
        _ratio(_SAFE, wall, "wall"),
        _ratio(_PACKAGE, wall, "wall"),
    ]


def _ratio(
    statement: str, taken: Seconds, clock: str, at_most: float | None = None
) -> Figure:
    return Figure(
        row="import",
        name=f"{statement}, {clock} / stock",
        measured=ratio_of_pairs(taken[statement], taken[_STOCK]),
        unit="x",
        at_most=at_most,
        rounds={
            one: [round(value * 1000, 2) for value in taken[one]]
            for one in (statement, _STOCK)
        },
        note=f"stock: {_STOCK}; raw values in milliseconds",
    )


def import_seconds(
    statement: str, env: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Return the seconds of wall and of CPU that a statement takes a new interpreter."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", _SCRIPT.format(statement=statement)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        env={**os.environ, **(env or {})},
    )
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)
