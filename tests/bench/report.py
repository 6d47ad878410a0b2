"""The result as JSON for a machine and as a table for people."""

import contextlib
import datetime as dt
import os
import platform
from collections.abc import Iterable, Iterator
from importlib import metadata

from tests.bench.figures import Figure

_DISTRIBUTIONS = (
    "safeconsumer",
    "kafka-python",
    "attrs",
    "crc32c",
    "rpds-py",
    "structlog",
)
_COMPARED = ("aiokafka", "confluent-kafka", "cramjam")


def as_dict(
    figures: Iterable[Figure], *, broker: str, smoke: bool, seconds: float
) -> dict[str, object]:
    """Return everything as plain JSON values; nothing names the machine."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.system(),
            "architecture": platform.machine(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _DISTRIBUTIONS},
            **dict(_installed(_COMPARED)),
        },
        "broker": broker,
        "smoke": smoke,
        "seconds": round(seconds, 1),
        "figures": [figure.as_dict() for figure in figures],
    }


def _installed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def as_table(figures: Iterable[Figure]) -> str:
    """Return one line per figure."""
    rows = [("row", "figure", "target", "measured", "")]
    rows.extend(
        (
            one.row,
            one.name,
            one.target or "-",
            f"{one.measured:.4g} {one.unit}",
            {True: "ok", False: "MISSED", None: ""}[one.passed],
        )
        for one in figures
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
