"""
Splits a journal into the facts about each partition, which the judge is given.

A journal belongs to one member, while the judge hears one case at a time: one consumer
group and one partition. This module splits a journal in one pass and with little
memory, so that each case can be judged anywhere from its facts alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field, frozen

from safeconsumer.audit.journal import Entry, Source
from safeconsumer.audit.reading import covering_for_group, tp_of

OVER = "over"
"""
The event of the last fact about each partition: where the journal ends.
"""


@frozen(order=True)
class Address:
    """
    The group and partition that a fact is about.

    Attributes:
        group: a consumer group; None for every group (what a producer wrote).
        topic: a topic.
        partition: its number.
    """

    group: str | None
    topic: str
    partition: int

    @property
    def is_case(self) -> bool:
        """Return whether it is one group and one partition, which can be judged."""
        return self.group is not None


@define
class Fact:
    """
    One entry of a journal, as far as it concerns one address; it is never changed.

    Attributes:
        member: the process that wrote it; no two journals name the same.
        number: the entry's number in its journal.
        at: seconds since the epoch, by the clock of that member.
        event: the event, as in the journal, or :data:`OVER`.
        fields: the entry's fields; for several partitions only those of this one.
        called: the entry at which the poll of a delivery was called; for other events,
            the call of the poll under way; None between polls.
        polls: how many polls of the member, or steps of an iteration, had returned.
    """

    member: str
    number: int
    at: float
    event: str
    fields: Mapping[str, Any] = field(factory=dict)
    called: int | None = None
    polls: int = 0

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        """Return a field; None if it is not there."""
        return self.fields.get(name)


Told = Iterator[tuple[Address, Fact]]

# Seconds within which consecutive acknowledged runs are joined into one fact.
_TOGETHER = 1.0


def facts(journal: Source) -> Told:
    """
    Yield the facts of a journal in order, each with its address.

    Raises:
        JournalError: it is broken somewhere, or names a scope that cannot be read.
    """
    apart = _Apart(journal.group)
    take = apart.take
    for entry in journal.entries:
        yield from take(entry)
    yield from apart.end()


def docket(addresses: Iterable[Address]) -> dict[Address, frozenset[Address]]:
    """
    Return the cases that facts are about, and the addresses whose facts each needs.

    A partition that was written to is a case of each group that reads its topic. If no
    group does, it is a case of the group ``""``: nobody delivered the acknowledged
    records. If groups and a consumer without a group read a topic, that consumer is
    judged only on the partitions that its own journal names.
    """
    found = frozenset(addresses)
    readers: dict[str, set[str]] = {}
    for one in found:
        if one.is_case and one.group is not None:
            readers.setdefault(one.topic, set()).add(one.group)
    cases = {one for one in found if one.is_case}
    for one in found:
        if one.group is None:
            groups = readers.get(one.topic, {""})
            groups = groups - {""} or groups
            cases.update(evolve(one, group=group) for group in groups)
    return {
        case: frozenset({case, evolve(case, group=None)}) & found
        for case in sorted(cases)
    }


def written_to(addresses: Iterable[Address]) -> frozenset[str]:
    """Return the topics for which a journal or the topic itself says what was written."""
    return frozenset(one.topic for one in addresses if one.group is None)


class _Apart:
    """
    Keeps what facts need to know of earlier entries: polls, and holds in force.

    Args:
        group: the group of the member.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._cases: dict[str, Address] = {}
        self._last: Entry | None = None
        self._poll: tuple[object, int] = (None, 0)
        self._step: tuple[object, int] = (None, 0)
        self._delivered = 0
        self._polling: int | None = None
        self._polls = 0
        self._running: Mapping[str, Any] = {}
        self._departed: dict[str, Entry] = {}
        self._acks: dict[str, tuple[Entry, float, int]] = {}
        self._working: Entry | None = None
        # A partition that is named later needs the earlier entries of each hold: by
        # scope and owner, the entry that placed it and those that followed. If it was
        # placed again, also the entry before, which a running poll must still obey.
        self._holds: dict[tuple[str, str], list[Entry]] = {}
        self._lifting: dict[object, dict[tuple[str, str], list[Entry]]] = {}
        self._takers: Mapping[str, Callable[[Entry], Told]] = {
            "acked": self._acked,
            "assigned": self._owned,
            "call": self._call,
            "group": self._belongs,
            "hold": self._hold,
            "kept": self._kept,
            "lift": self._hold,
            "lost": self._owned,
            "return": self._call,
            "revoked": self._owned,
            "running": self._runs,
            "working": self._works,
        }

    def take(self, entry: Entry) -> Iterable[tuple[Address, Fact]]:
        self._last = entry
        fields = entry.fields
        if fields.get("op") == "poll":  # most are about no partition
            self._took_poll(entry)
            return ()
        taker = self._takers.get(entry.event)
        if taker is not None:
            return taker(entry)
        name = fields.get("tp")
        return () if name is None else self._about(name, entry, fields)

    def end(self) -> Told:
        for name in list(self._acks):
            yield self._acknowledged(name)
        yield from self._over()

    def _over(self) -> Told:
        last = self._last
        if last is not None:
            for case in self._cases.values():
                yield case, self._fact(last, {}, event=OVER)

    def _belongs(self, entry: Entry) -> Told:
        if entry["group"] == self._group:
            return
        yield from self._over()
        if self._cases or self._group:  # the entries so far belong to another consumer
            self._cases.clear()
            self._holds.clear()
            self._departed.clear()
            self._working = None
        self._group = entry["group"]

    # ------------------------------------------------------------ of one partition

    def _about(self, name: str, entry: Entry, fields: Mapping[str, Any]) -> Told:
        if name not in self._cases:
            yield from self._before(name)
        fact = self._fact(entry, fields)
        if entry.event == "deliver":
            if entry["after"] is not None:
                self._polls += 1
                fact.polls += 1
            fact.called = self._called(entry)
            self._delivered = entry.number
        yield self._cases[name], fact

    def _before(self, name: str) -> Told:
        # Yields the entries of holds that were placed before the partition was named.
        topic, partition = tp_of(name)
        case = self._cases[name] = Address(self._group, topic, partition)
        if self._working is not None:
            yield case, self._fact(self._working, self._working.fields)
        earlier = [(one, key) for key, many in self._holds.items() for one in many]
        for one, (scope, _) in sorted(earlier, key=lambda two: two[0].number):
            yield from self._everywhere(one, [name], [scope])

    def _called(self, entry: Entry) -> int:
        after = entry["after"]
        if after is not None:
            if after != self._step[0]:  # another poll: the one before has returned
                self._step = after, max(int(after), self._delivered) + 1
            return self._step[1]
        call, number = self._poll
        is_its = call is not None and call == entry["poll"]
        return number if is_its else entry.number

    def _owned(self, entry: Entry) -> Told:
        said = {"generation": entry["generation"]}
        if entry["commits"] is not None:
            said["commits"] = entry["commits"]
        for name in entry["partitions"] or ():
            if entry.event != "assigned":
                self._departed[name] = entry
            yield from self._about(name, entry, said)

    # ------------------------------------------------------------ calls

    def _call(self, entry: Entry) -> Told:
        match entry["op"]:
            case "pause" | "resume":
                yield from self._everywhere(entry, self._cases)
                self._note(entry)
            case "seek" | "commit":
                said = {name: entry[name] for name in ("op", "id", "ok")}
                for name, offset in (entry["offsets"] or {}).items():
                    yield from self._about(name, entry, {**said, "offset": offset})

    def _took_poll(self, entry: Entry) -> None:
        if entry.event == "call":
            self._poll = entry["id"], entry.number
            self._polling = entry.number
        else:
            self._poll = None, 0  # it returns nothing more
            self._polling = None
            self._polls += entry["ok"] is not False

    # ------------------------------------------------------------ holds

    def _hold(self, entry: Entry) -> Told:
        yield from self._everywhere(entry, self._cases)
        self._note(entry)

    def _everywhere(
        self, entry: Entry, names: Iterable[str], scopes: Iterable[str] | None = None
    ) -> Told:
        scopes = _scopes(entry) if scopes is None else scopes
        covers = [(scope, covering_for_group(scope)) for scope in scopes]
        assigned = frozenset(entry["assigned"] or ())
        gone = self._latest_departure(entry["scope"]) if entry.event == "lift" else None
        for name in list(names):
            case = self._cases[name]
            tp = case.topic, case.partition
            found = [scope for scope, covered in covers if covered(tp)]
            if found or name in assigned:
                yield case, self._fact(entry, self._said(entry, name, found, gone))

    def _said(
        self, entry: Entry, name: str, found: list[str], gone: Entry | None
    ) -> Mapping[str, Any]:
        said: dict[str, Any] = {**entry.fields, "scopes": found}
        if entry.event == "lift":
            if gone is not None:
                said["departed"], said["departed_at"] = gone.number, gone.at
            return said
        for flag in ("assigned", "paused", "gated"):
            if flag in said:
                said[flag] = None if said[flag] is None else name in said[flag]
        said["running"] = self._running.get(name, ())
        return said

    def _latest_departure(self, scope: str) -> Entry | None:
        # A hold bound to ownership ends once any of its partitions departs.
        covers = covering_for_group(scope)
        gone = [one for name, one in self._departed.items() if covers(tp_of(name))]
        return max(gone, key=lambda one: one.number, default=None)

    def _note(self, entry: Entry) -> None:
        owner = entry["owner"] or ""
        for scope in _scopes(entry):
            key = scope, owner
            match entry.event, entry["op"]:
                case ("hold", _) | ("return", "pause") if entry["ok"] is not False:
                    self._holds[key] = [*_last_placed(self._holds.get(key, [])), entry]
                case "call", "resume" if key in self._holds:
                    lifting = self._lifting.setdefault(entry["id"], {})
                    lifting[key] = self._holds.pop(key)
                case "return", "resume":
                    again = self._lifting.get(entry["id"], {}).pop(key, None)
                    if again is not None and entry["ok"] is False:
                        self._holds.setdefault(key, again)
                case "lift", _ if key in self._holds:
                    self._holds[key].append(entry)
        if entry.event == "return":
            self._lifting.pop(entry["id"], None)

    # ------------------------------------------------------------ of all partitions

    def _works(self, entry: Entry) -> Told:
        self._working = entry
        for case in self._cases.values():
            yield case, self._fact(entry, entry.fields)

    def _runs(self, entry: Entry) -> Told:
        self._running = entry["records"]  # for the hold in the next entry
        return iter(())

    def _kept(self, entry: Entry) -> Told:
        said = {"first": entry["first"]}
        yield Address(None, *tp_of(entry["tp"])), self._fact(entry, said)

    def _acked(self, entry: Entry) -> Told:
        name, first = entry["tp"], entry["first"]
        known = self._acks.get(name)
        began = entry.at
        if known is not None:
            before, since, start = known
            if before["last"] + 1 == first and entry.at - since <= _TOGETHER:
                began, first = since, start
            else:
                yield self._acknowledged(name)
        self._acks[name] = entry, began, first

    def _acknowledged(self, name: str) -> tuple[Address, Fact]:
        entry, _, first = self._acks.pop(name)
        said = {"first": first, "last": entry["last"]}
        return Address(None, *tp_of(name)), self._fact(entry, said)

    def _fact(
        self,
        entry: Entry,
        fields: Mapping[str, Any] | None = None,
        event: str | None = None,
    ) -> Fact:
        return Fact(
            entry.member,
            entry.number,
            entry.at,
            event or entry.event,
            entry.fields if fields is None else fields,
            self._polling,
            self._polls,
        )


def _last_placed(entries: Sequence[Entry]) -> Sequence[Entry]:
    # The last entry that placed a hold, and what came after it.
    for at in range(len(entries) - 1, -1, -1):
        if entries[at].event != "lift":
            return entries[at:]
    return ()


def _scopes(entry: Entry) -> Iterable[str]:
    return [entry["scope"]] if entry["scope"] else entry["scopes"] or ()
