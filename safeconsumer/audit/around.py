"""Collects the journal entries around a violation, to show them to people."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from safeconsumer.audit.findings import Finding
from safeconsumer.audit.journal import Entry, Source
from safeconsumer.audit.reading import TopicPartition, covering_for_group
from safeconsumer.errors import JournalError
from safeconsumer.journal.format import tp_text

_BEFORE, _AFTER = 6, 3

_CALLS_WITH_SCOPES = frozenset({"pause", "resume"})


@frozen
class Excerpt:
    """
    Entries of one journal that belong together.

    Attributes:
        member: the member whose journal it is.
        group: its consumer group.
        entries: the entries in order, without those that do not concern the partition.
        marked: the numbers of the entries that show the violation.
    """

    member: str
    group: str
    entries: tuple[Entry, ...]
    marked: frozenset[int]


def excerpts(
    journals: Iterable[Source], tp: TopicPartition, finding: Finding
) -> Iterator[Excerpt]:
    """
    Yield a few entries of each journal around one violation.

    If a member broke a promise by itself, they are those of its journal around the
    entry that shows it. Otherwise they are those of all members of its group and of
    producers, around the runs that include the offset.
    """
    for journal in journals:
        try:
            if finding.member not in {"", journal.member}:
                continue
            own = _of_the_group(journal, tp, finding.case.group or "")
            found = _around(own, _Shows(finding))
        except JournalError:
            continue  # broken further on; this was reported when it was judged
        if found is not None:
            yield Excerpt(journal.member, journal.group, *found)


def _of_the_group(journal: Source, tp: TopicPartition, group: str) -> Iterator[Entry]:
    # Entries of another group show nothing about this one; those of producers may be
    # in any journal.
    for one in _concerning(journal, tp):
        if one.event in {"acked", "kept"} or journal.group == group:
            yield one


def _concerning(journal: Source, tp: TopicPartition) -> Iterator[Entry]:
    name = tp_text(tp)

    def is_covered(scope: str) -> bool:
        try:
            return covering_for_group(scope)(tp)
        except JournalError:  # it may cover the partition
            return True

    for one in journal.entries:
        if one["op"] in _CALLS_WITH_SCOPES or one["scope"] is not None:
            named = (one["scope"],) if one["scopes"] is None else one["scopes"]
            if any(map(is_covered, named)):
                yield one
        elif (
            one["tp"] == name
            or name in (one["partitions"] or ())
            or name in (one["offsets"] or ())
        ):
            yield one


class _Shows:
    """Decides whether an entry shows a violation."""

    def __init__(self, finding: Finding) -> None:
        self._finding = finding

    def __call__(self, entry: Entry) -> bool:
        finding = self._finding
        if finding.entry is not None:
            return entry.number == finding.entry
        if finding.offset is None or entry.event not in {"deliver", "moved", "acked"}:
            return False
        start = entry["from"] if entry["first"] is None else entry["first"]
        end = entry["next"] if entry["last"] is None else entry["last"] + 1
        return bool(start <= finding.offset <= end)


def _around(
    entries: Iterable[Entry], shows: _Shows
) -> tuple[tuple[Entry, ...], frozenset[int]] | None:
    before: deque[Entry] = deque(maxlen=_BEFORE)
    found: list[Entry] = []
    marked: set[int] = set()
    left = 0
    for one in entries:
        if shows(one):
            found.extend(before)
            before.clear()
            marked.add(one.number)
            left = _AFTER + 1
        if left:
            found.append(one)
            left -= 1
            if not left:
                break
        else:
            before.append(one)
    return (tuple(found), frozenset(marked)) if marked else None


def lines(found: Iterable[Excerpt]) -> Sequence[str]:
    """Return excerpts as text; lines that show the violation begin with ``>``."""
    said = []
    for excerpt in found:
        of = f" of {excerpt.group}" if excerpt.group else ""
        said.append(f"  {excerpt.member}{of}")
        for one in excerpt.entries:
            mark = ">" if one.number in excerpt.marked else " "
            fields = "  ".join(
                f"{key}={_text(value)}" for key, value in one.fields.items()
            )
            said.append(
                f"  {mark} {one.number:>6}  {one.at:.3f}  {one.event}  {fields}"
            )
    return said


def _text(value: object) -> str:
    if isinstance(value, list):
        shown = ",".join(map(str, value[:8]))
        return shown if len(value) <= 8 else f"{shown},... ({len(value)})"  # noqa: PLR2004 - as many as fit
    return str(value)
