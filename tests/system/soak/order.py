"""Finds records that a worker began before an earlier one was complete anywhere."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from attrs import Factory, define

from tests.harness.audit.telling import Line, Read

Lane = tuple[str, str]  # a partition, and the lane of a worker in it


def overtaken(journals: Iterable[Read]) -> list[str]:
    """
    Return each start before which not all of its lane was complete, by whomever.

    The audit judges each worker by itself, without clocks. Here the times of all are
    put in one order: a record is complete where its handler returned first, anywhere,
    its dead letter arrived, or a program without handlers asked to commit it. Between
    that and another worker's start lie a commit, a rebalance and a fetch, so the clock
    of one machine is good enough.
    """
    entries = sorted(
        (one for journal in journals for one in journal.lines if _tells(one)),
        key=lambda one: one.at,
    )
    lanes: dict[Lane, _Lane] = defaultdict(_Lane)
    lane_of: dict[tuple[str, int], _Lane] = {}
    for one in entries:
        if one.event == "handle":
            lane = lanes[one["tp"], one["lane"]]
            lane_of[one["tp"], one["offset"]] = lane
            lane.incomplete.add(one["offset"])
    for lane in lanes.values():
        lane.waiting = sorted(lane.incomplete, reverse=True)
    of_partition: dict[str, list[_Lane]] = defaultdict(list)
    for (tp, _), lane in lanes.items():
        of_partition[tp].append(lane)
    return list(_found(entries, lane_of, of_partition))


@define
class _Lane:
    """What is begun in one order: what is incomplete, and the same, first one last."""

    incomplete: set[int] = Factory(set)
    waiting: list[int] = Factory(list)
    floor: int = 0  # everything before is committed

    def first(self) -> int | None:
        """Return the first record that is not complete, None if all are."""
        while self.waiting and not self._is_open(self.waiting[-1]):
            self.waiting.pop()
        return self.waiting[-1] if self.waiting else None

    def _is_open(self, offset: int) -> bool:
        return offset >= self.floor and offset in self.incomplete


def _tells(entry: Line) -> bool:
    if entry.event == "call":
        return bool(entry["op"] == "commit")
    return entry.event in {"handle", "handled", "completed"}


def _found(
    entries: Iterable[Line],
    lane_of: dict[tuple[str, int], _Lane],
    of_partition: dict[str, list[_Lane]],
) -> Iterator[str]:
    for one in entries:
        if one.event == "call":
            for tp, offset in one["offsets"].items():
                for lane in of_partition.get(tp, ()):
                    lane.floor = max(lane.floor, offset)
            continue
        offset = one["offset"]
        lane = lane_of[one["tp"], offset]
        if one.event != "handle":
            if one["ok"] is not False:
                lane.incomplete.discard(offset)
        elif (first := lane.first()) is not None and first < offset:
            yield f"{one.member}, entry {one.number}: {offset} before {first}"
