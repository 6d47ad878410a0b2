"""Order per key over all workers together, as somebody sees it who only sees handlers."""

from collections import defaultdict
from collections.abc import Iterable

from safeconsumer.audit.journal import Entry, Journal

Lane = tuple[str, str]


def overtaken(journals: Iterable[Journal]) -> list[str]:
    """
    Return each start before which not all of its lane was complete, by whomever.

    The audit judges each worker by itself, without clocks. Here the times of all are
    put in one order: a record is complete where its handler returned first, anywhere,
    or its dead letter arrived. Between that and another worker's start lie a commit, a
    rebalance and a fetch, so the clock of one machine is good enough.
    """
    entries = sorted(
        (one for journal in journals for one in journal.entries if one.event in _TOLD),
        key=lambda one: one.at,
    )
    lanes: dict[Lane, set[int]] = defaultdict(set)
    lane_of: dict[tuple[str, int], Lane] = {}
    for one in entries:
        if one.event == "handle":
            lane = lane_of[one["tp"], one["offset"]] = one["tp"], one["lane"]
            lanes[lane].add(one["offset"])
    waiting = {lane: sorted(offsets, reverse=True) for lane, offsets in lanes.items()}
    return [said for one in entries for said in _follow(one, waiting, lane_of, lanes)]


_TOLD = frozenset({"handle", "handled", "completed"})


def _follow(
    entry: Entry,
    waiting: dict[Lane, list[int]],
    lane_of: dict[tuple[str, int], Lane],
    lanes: dict[Lane, set[int]],
) -> Iterable[str]:
    # What is in ``lanes`` is not complete; ``waiting`` ends in the first of these.
    offset = entry["offset"]
    lane = lane_of[entry["tp"], offset]
    if entry.event == "handle":
        while waiting[lane] and waiting[lane][-1] not in lanes[lane]:
            waiting[lane].pop()
        if waiting[lane] and waiting[lane][-1] < offset:
            first = waiting[lane][-1]
            yield f"{entry.member}, entry {entry.number}: {offset} before {first}"
    elif entry["ok"] is not False:
        lanes[lane].discard(offset)
