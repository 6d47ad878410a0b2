"""
Remembers what the last plan of each query left out, also after the query has ended.

Spark posts no progress for a trigger without data within ten seconds of the last batch
(``noDataProgressEventInterval``): a run that ends by itself ends with such a plan.
"""

import threading
from collections.abc import Mapping

# The most runs to remember, some numbers each; for more, Spark's progress is used.
_MOST_RUNS = 1000

Metrics = Mapping[str, str]

_lock = threading.Lock()
_runs: dict[str, dict[str, Metrics | None]] = {}


def note(batch: str, stream: str, metrics: Metrics | None) -> None:
    """
    Note what a plan has left out.

    Args:
        batch: Spark's description of the batch; it names the run of the query.
        stream: the source of the query.
        metrics: as in the source's progress; None while the plan is being made.
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
    Return what the last plan of each source of a run has left out.

    Returns:
        One for each source; None if it is not known: the run is in another process, or
        a plan was not completed.
    """
    with _lock:
        found = tuple(_runs.get(run, {}).values())
    known = tuple(one for one in found if one is not None)
    return known if known and len(known) == len(found) else None
