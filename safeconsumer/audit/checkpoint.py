"""
Judges whether a Spark stream obeyed holds, by its checkpoint and the holds topic: S1.

For each batch Spark's offset log has a file ``offsets/N``: ``v1``, then a line of JSON
with ``batchTimestampMs``, then a line for each source with the offsets at which the
batch ends, for Kafka ``{"orders":{"0":10}}``. Spark takes this time after it has
requested the end offsets from each source, so the planning of a batch began before the
batch's time, and after the previous batch's time. ``sources/I/0`` contains the offsets
at which the first batch begins. Spark deletes the files of old batches
(``spark.sql.streaming.minBatchesToRetain``, 100). The stream itself writes
``sources/I/skips/N``: the offsets that batch N skipped on request, without reading
their records.

| the batch moves a partition's offsets, and | S1 |
|---|---|
| its time is before or after every hold of the partition | kept |
| its planning certainly began, and ended, under one hold | violated |
| its time is within a hold, near one of its ends | not judged |

Batch times come from the driver's clock, and hold times from the broker's clock.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

from attrs import evolve, frozen

from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.reading import TopicPartition, covering
from safeconsumer.audit.report import Row
from safeconsumer.errors.base import CheckpointError, JournalError

CHECK = "S1"
BASIS = "the stream's offset log and the broker's times, within the allowance"

# Seconds by which the driver's clock may be wrong; streams use the same default
# (clockSkewMs).
_DOUBT = 30.0
# The maximum number of seconds that planning may take: Kafka's clients give up after
# one minute, the source after three attempts.
_LONGEST_PLAN = 600.0
_VERSION = "v1"
_BATCH = re.compile(r"(?:.*/)?offsets/(\d{1,18})")
_START = re.compile(r"(?:.*/)?sources/(\d{1,9})/0")
_SKIPS = re.compile(r"(?:.*/)?sources/(\d{1,9})/skips/(\d{1,18})")

# The errors that a broken file may cause.
_BROKEN = (
    ArithmeticError,
    LookupError,
    OSError,  # a time that the operating system cannot represent
    RecursionError,
    TypeError,
    ValueError,
)

# The index of a source in the query, and a partition that the source reads.
Place = tuple[int, TopicPartition]
Offsets = Mapping[Place, int]
_T = TypeVar("_T")


@frozen(kw_only=True)
class Batch:
    """
    A planned batch.

    Attributes:
        number: the batch's number.
        at: when Spark had planned the batch, by the driver's clock, seconds since the
            epoch.
        ends: the offset after the batch's last record, for each partition.
    """

    number: int
    at: float
    ends: Offsets

    @property
    def planned(self) -> str:
        """A sentence that says when the batch was planned."""
        return f"batch {self.number} was planned at {_utc(self.at)}"


@frozen
class Skip:
    """
    Offsets that a batch skipped in one partition.

    Attributes:
        batch: the number of the batch.
        place: the source and the partition.
        at: the offset at which the batch would have started without the skip.
        to: the offset at which the batch starts instead.
    """

    batch: int
    place: Place
    at: int
    to: int


@frozen(kw_only=True)
class Checkpoint:
    """
    The batches that a checkpoint still has.

    Attributes:
        name: names the stream in findings.
        batches: the batches, in order.
        starts: the offsets at which the stream's first batch begins, as far as they are
            known.
        skips: the offsets that batches skipped, in order.
    """

    name: str
    batches: tuple[Batch, ...]
    starts: Offsets
    skips: tuple[Skip, ...] = ()


@frozen(kw_only=True)
class Move:
    """
    The offsets of one partition that one batch reads.

    Attributes:
        batch: the batch.
        began: a time before the start of the planning, by the driver's clock.
        first: the offset of the first record.
        end: the offset after the last record.
        is_alone: whether this batch alone made the move, because the previous batch is
            known.
    """

    batch: Batch
    began: float
    first: int
    end: int
    is_alone: bool

    def may_be_under(self, span: Span, skew: float) -> bool:
        """Return whether the batch may have been planned while a hold was in force."""
        earliest = self.batch.at if self.is_alone else self.began
        return span.start - skew < self.batch.at and earliest < span.end + skew

    def is_under(self, span: Span, doubt: float) -> bool:
        """Return whether a hold was certainly in force during the whole planning."""
        begin, end = span.start + doubt, span.end - doubt
        return begin <= self.began and self.batch.at <= end

    def __str__(self) -> str:
        """Return a sentence that names the batch and the offsets."""
        return f"{self.batch.planned}, with the offsets {self.first} to {self.end - 1}"


def checkpoint_of(name: str, files: Mapping[str, str]) -> Checkpoint:
    """
    Read a checkpoint.

    Args:
        name: the checkpoint's folder.
        files: the text of each file ``offsets/N``, ``sources/I/0`` and
            ``sources/I/skips/N``, by its path.

    Raises:
        CheckpointError: there is no batch, or a file cannot be parsed.
    """
    batches = sorted(_each(name, files, _BATCH, _batch), key=lambda batch: batch.number)
    sources = {source for batch in batches for source, _ in batch.ends}
    if not sources:
        message = f"{name} is no checkpoint that has a batch of Kafka's records"
        raise CheckpointError(message)
    own = {path: text for path, text in files.items() if _source(path) in sources}
    starts = _each(name, own, _START, _start)
    skips = [one for several in _each(name, own, _SKIPS, _skips) for one in several]
    return Checkpoint(
        name=name,
        batches=tuple(batches),
        starts={place: offset for one in starts for place, offset in one.items()},
        skips=tuple(sorted(skips, key=lambda skip: skip.batch)),
    )


def _source(path: str) -> int | None:
    # Return the index of the source to which a file belongs.
    found = _START.fullmatch(path) or _SKIPS.fullmatch(path)
    return None if found is None else int(found[1])


def _each(
    name: str,
    files: Mapping[str, str],
    of: re.Pattern[str],
    parse: Callable[[list[int], str], _T],
) -> list[_T]:
    # Parse each file whose path matches a pattern.
    parsed = []
    for path, text in files.items():
        if (found := of.fullmatch(path)) is None:
            continue
        try:
            parsed.append(parse(list(map(int, found.groups())), text))
        except _BROKEN as error:
            message = f"{name}: {path} is not in Spark's format: {error!r:.200}"
            raise CheckpointError(message) from error
    return parsed


def _lines(text: str) -> list[str]:
    # Spark writes a zero byte before the first offsets, which Spark 2.1 required.
    version, *lines = text.lstrip("\0").rstrip("\n").split("\n")
    if version != _VERSION:
        message = f"it has the version {version[:20]!r}, not {_VERSION}"
        raise ValueError(message)
    return lines


def _batch(numbers: list[int], text: str) -> Batch:
    facts, first, *others = _lines(text)
    ends: dict[Place, int] = {}
    for source, line in enumerate((first, *others)):
        ends.update(_offsets(source, line))
    at = int(json.loads(facts)["batchTimestampMs"]) / 1000
    datetime.fromtimestamp(at, UTC)  # this call raises if the number is not a time
    return Batch(number=numbers[0], at=at, ends=ends)


def _start(numbers: list[int], text: str) -> dict[Place, int]:
    (line,) = _lines(text)
    return _offsets(numbers[0], line)


def _skips(numbers: list[int], text: str) -> list[Skip]:
    # A truncated file belongs to a batch that was never planned.
    source, batch = numbers
    with suppress(*_BROKEN):
        return [
            Skip(
                batch=batch,
                place=(source, (one["topic"], int(one["partition"]))),
                at=int(one["at"]),
                to=int(one["to"]),
            )
            for one in json.loads(text)
        ]
    return []


def _offsets(source: int, line: str) -> dict[Place, int]:
    # Sources other than Kafka's write other formats, which may also be JSON.
    document = json.loads(line) if line.startswith("{") else None
    topics = document.items() if isinstance(document, dict) else ()
    if not all(
        isinstance(one, dict) and all(map(_is_number, one)) for _, one in topics
    ):
        return {}
    return {
        (source, (topic, int(partition))): int(offset)
        for topic, partitions in topics
        for partition, offset in partitions.items()
    }


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def judged(
    checkpoint: Checkpoint, control: Control, group: str, skew: float = 0.0
) -> tuple[Row, ...]:
    """
    Return a row for each partition that the stream reads.

    Args:
        checkpoint: the stream's checkpoint.
        control: the holds of the group.
        group: the group whose holds the stream obeys, by its option ``holds.group``.
        skew: seconds by which the clocks of two hosts may differ.
    """
    moves: dict[TopicPartition, list[Move]] = {}
    for (_, tp), move in _moves(checkpoint):
        moves.setdefault(tp, []).append(move)
    first = checkpoint.batches[0].at
    spans = [
        one for one in control.spans if one.group == group and one.end + skew > first
    ]
    every = {tp for batch in checkpoint.batches for _, tp in batch.ends}
    rows = []
    for tp in sorted(every):
        row = Row(
            group=group,
            check=CHECK,
            topic=tp[0],
            partition=tp[1],
            member=checkpoint.name,
            basis=BASIS,
            unjudged=_unknown(moves.get(tp, []), control, group, skew),
        )
        row = _judged(row, moves.get(tp, []), _of(tp, spans), skew)
        if row.unjudged:
            row = evolve(row, unjudged=f"{checkpoint.name}: {row.unjudged}")
        rows.append(row)
    return tuple(rows)


def _moves(checkpoint: Checkpoint) -> Iterator[tuple[Place, Move]]:
    before = Batch(number=-1, at=-math.inf, ends=checkpoint.starts)
    for last, batch in pairwise((before, *checkpoint.batches)):
        is_alone = last.number + 1 == batch.number
        began = max(last.at, batch.at - _LONGEST_PLAN) if is_alone else last.at
        positions = _positions(last, batch, checkpoint.skips)
        for place, end in batch.ends.items():
            # A new partition that is held starts at 0. The start is unknown for the
            # oldest batch that Spark still keeps, and for the stream's first batch if
            # the file with its start offsets is missing.
            is_known = last.number >= 0 or (is_alone and place in last.ends)
            first = positions.get(place, 0)
            if is_known and first < end:
                move = Move(
                    batch=batch, began=began, first=first, end=end, is_alone=is_alone
                )
                yield place, move


def _positions(last: Batch, batch: Batch, skips: Iterable[Skip]) -> Offsets:
    # Return the offsets at which a batch begins to read, after its skips.
    found = dict(last.ends)
    for one in skips:
        is_between = last.number < one.batch <= batch.number
        if is_between and found.get(one.place, 0) == one.at:
            found[one.place] = one.to
    return found


def _of(tp: TopicPartition, spans: Iterable[Span]) -> list[tuple[Span, str]]:
    # Return the hold spans that cover a partition, and those that may cover it, with
    # the reason.
    found = []
    for span in spans:
        try:
            if covering(span.scope)(tp):
                found.append((span, ""))
        except JournalError as error:
            found.append((span, str(error)))
    return found


def _judged(
    row: Row, moves: Iterable[Move], spans: Iterable[tuple[Span, str]], skew: float
) -> Row:
    doubt = max(skew, _DOUBT)
    for move in moves:
        near = [one for one in spans if move.may_be_under(one[0], skew)]
        sure = [one for one, why in near if not why and move.is_under(one, doubt)]
        if sure:
            row = _violated(row, move, sure[0])
        elif near and not row.unjudged:
            span, why = near[0]
            why = why or "two clocks cannot show which came first"
            planned = move.batch.planned
            row = evolve(row, unjudged=f"{planned}, and {_held(span)}: {why}")
    return row


def _violated(row: Row, move: Move, span: Span) -> Row:
    if row.violations:
        return evolve(row, violations=row.violations + 1)
    return evolve(
        row,
        violations=1,
        offset=move.first,
        at=move.batch.at,
        evidence=f"{move}, while {_held(span)}",
    )


def _held(span: Span) -> str:
    end = "" if span.end == math.inf else f" to {_utc(span.end)}"
    return f"{span.holder} held {span.scope} from {_utc(span.start)}{end}"


def _unknown(moves: list[Move], control: Control, group: str, skew: float) -> str:
    # Return why the known holds are not enough for a verdict; "" if they are.
    if control.trouble or not moves:
        return control.trouble
    if not control.is_about(group):
        return f"the given history is of the group {control.group} only"
    first, last = moves[0], moves[-1]
    if first.batch.at < control.since + skew:
        since = _utc(control.since)
        return (
            f"the control topics are complete since {since}, and {first.batch.planned}"
        )
    if control.may_lack(last.batch.at, skew):
        until = _utc(control.until)
        return f"the history ends at {until}, and {last.batch.planned}"
    return ""


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
