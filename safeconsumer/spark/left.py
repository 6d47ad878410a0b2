"""
What the last plan of each query has left alone, also after the query has ended.

Spark posts no progress for a trigger without data within ten seconds of the last batch
(``noDataProgressEventInterval``): a run that ends by itself ends with just such a plan.
"""

import threading
from collections.abc import Mapping

# Of each a few numbers; who runs so many at once is told by Spark's progress.
_MOST_RUNS = 1000

Metrics = Mapping[str, str]

_lock = threading.Lock()
_runs: dict[str, dict[str, Metrics | None]] = {}


def note(batch: str, stream: str, metrics: Metrics | None) -> None:
    """
    Note what a plan has left alone.

    Args:
        batch: what Spark says of it; names the run of the query.
        stream: which source of the query.
        metrics: as the source's progress would have them; None while it is being made.
    """
    run = batch.rpartition("runId = ")[2].partition("\n")[0]
    with _lock:
        streams = _runs.pop(run, {})
        streams[stream] = metrics
        _runs[run] = streams  # the newest is last
        if len(_runs) > _MOST_RUNS:
            del _runs[next(iter(_runs))]


def by(run: str) -> tuple[Metrics, ...] | None:
    """
    Return what the last plan of each source of a run has left alone.

    Returns:
        One for each source; None if that is not known: it is of another process, or a
        plan was not brought to its end.
    """
    with _lock:
        found = tuple(_runs.get(run, {}).values())
    known = tuple(one for one in found if one is not None)
    return known if known and len(known) == len(found) else None
