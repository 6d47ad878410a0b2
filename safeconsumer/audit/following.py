"""
One member's journal, followed entry by entry for all its partitions at once.
"""

from collections.abc import Iterable, Sequence

from safeconsumer.audit.journal import Entry, tp_of
from safeconsumer.audit.members import Member, Placed
from safeconsumer.audit.replay import Replay

_GROUP_HOLDS = frozenset({"group-hold", "group-lift"})
_OWNERSHIP = frozenset({"assigned", "revoked", "lost"})
_OF_ONE = frozenset({"deliver", "moved", "parked", "handle", "handled", "completed"})


class Follower:
    """
    Keeps what judging needs, and no entry: memory does not grow with the journal.

    Args:
        patience: seconds within which a resumed partition must deliver what is there.
        lifts: when holds from elsewhere ended.

    Attributes:
        replays: what is known of each partition, by its name.
        acknowledged: runs that a producer wrote, both ends included, by partition.
        control: group holds placed and lifted.
    """

    def __init__(self, patience: float, lifts: Sequence[Entry]) -> None:
        self._patience = patience
        self._member = Member(lifts)
        # What a partition that is named later must know of what came before.
        self._in_force: dict[tuple[str, str], Placed] = {}
        self.replays: dict[str, Replay] = {}
        self.acknowledged: dict[str, list[tuple[int, int]]] = {}
        self.control: list[Entry] = []

    def follow(self, entries: Iterable[Entry]) -> "Follower":
        """
        Take over a whole journal.
        """
        for entry in entries:
            self._take(entry)
        return self

    def _take(self, entry: Entry) -> None:
        match entry.event:
            case event if event in _OF_ONE:
                self._replay(entry["tp"]).take(entry)
            case "call" | "return":
                self._take_call(entry)
            case "hold" | "lift":
                self._take_everywhere(entry, [entry["scope"]])
            case "acked":
                self._take_acknowledged(entry)
            case event if event in _OWNERSHIP:
                for name in entry["partitions"] or ():
                    self._replay(name).take(entry)
            case event if event in _GROUP_HOLDS:
                self.control.append(entry)
            case _:
                self._member.take(entry)

    @property
    def is_working(self) -> bool:
        """
        Whether a worker's handlers get the records.
        """
        return self._member.is_working

    def _take_call(self, entry: Entry) -> None:
        op = entry["op"]
        if op == "poll":
            self._member.take_poll(entry)
        elif op in {"pause", "resume"}:
            self._take_everywhere(entry, entry["scopes"] or ())
        elif op in {"seek", "commit"}:
            for name in entry["offsets"] or ():
                self._replay(name).take(entry)

    def _take_everywhere(self, entry: Entry, scopes: Iterable[str]) -> None:
        for replay in self.replays.values():
            replay.take(entry)
        if entry["ok"] is False:
            return
        for scope in scopes:
            self._note((scope, entry["owner"] or ""), entry)

    def _note(self, key: tuple[str, str], entry: Entry) -> None:
        known = self._in_force.get(key)
        match entry.event, entry["op"]:
            case ("hold", _) | ("return", "pause"):
                self._in_force[key] = self._member.placed(entry, key)
            case ("call", "resume"):
                self._in_force.pop(key, None)
            case ("lift", _) if known is not None and known.is_ended_by(entry):
                del self._in_force[key]

    def _take_acknowledged(self, entry: Entry) -> None:
        runs = self.acknowledged.setdefault(entry["tp"], [])
        first, last = entry["first"], entry["last"]
        if runs and runs[-1][1] + 1 == first:
            runs[-1] = runs[-1][0], last
        else:
            runs.append((first, last))

    def _replay(self, name: str) -> Replay:
        known = self.replays.get(name)
        if known is None:
            known = Replay(tp_of(name), self._patience, self._member)
            for key, hold in self._in_force.items():
                known.take_hold(key, hold)
            self.replays[name] = known
        return known
