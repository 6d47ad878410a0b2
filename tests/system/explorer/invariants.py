"""What must be true after each run, whatever the order was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from kafka.structs import TopicPartition

from tests.harness.explorer.engine import Outcome
from tests.system.explorer.broker import END, ONE, TWO
from tests.system.explorer.subject import Call, Held, Stage, Start

# Data, parked data and offsets are asked for by polls of their own; then it is over.
_MOST_POLLS = 30


def check(stage: Stage) -> Iterator[str]:
    """Bring the subject to rest, and say what is wrong."""
    yield from _locks(stage)
    yield from _answers(stage)
    yield from _events(stage)
    if not stage.is_closed:
        yield from _rest(stage)
        yield from _events(stage)
    yield from _held(stage)
    yield from _sequences(stage)
    yield from _commits(stage)


def _locks(stage: Stage) -> Iterator[str]:
    """P12: what may be called in a signal handler takes none of upstream's locks there."""
    if stage.taken_in_handler and not stage.is_closed:
        yield f"P12: a handler took the locks of {sorted(stage.taken_in_handler)}"


# ---------------------------------------------------------------- what was answered


def _answers(stage: Stage) -> Iterator[str]:
    """Whoever was told "free" sees the partition flow; whoever was not, a hold."""
    for one in stage.freed:
        is_waiting = one.own.intersection(one.stayed)
        if is_waiting and one.is_in_handler:
            continue  # what it interrupted goes on first, and then lifts them
        if is_waiting:
            yield f"P3: resume left {_named(is_waiting)}"
        for tp in sorted(one.paused):
            if not any(hold.scope.covers(tp) for hold in one.holds):
                yield (
                    f"P10: resume answered {_named(one.answer)}, and {_text(tp)} is "
                    f"quiet, though no hold covers it"
                )
        for hold in one.stayed:
            covers = any(hold.scope.covers(tp) for tp in one.asked)
            if covers and hold not in one.answer:
                yield f"P3: resume answered free, and {hold.scope} stays held"


def _named(holds: Iterable[object]) -> str:
    return "free" if not holds else f"held {list(holds)}"


# ---------------------------------------------------------------- events


def _events(stage: Stage) -> Iterator[str]:
    """Whoever replays the events knows what is held, and what is quiet."""
    stage.flush()
    held: set[tuple[str, str]] = set()
    quiet: set[TopicPartition] = set()
    for event in stage.events:
        match event.name:
            case "hold_placed":
                held |= {_key(hold) for hold in event.holds}
                quiet |= set(event.quiet)
            case "hold_removed" | "hold_expired" | "hold_ended":
                held -= {_key(hold) for hold in event.holds}
                quiet -= set(event.flowing)
            case "gate_changed":
                quiet -= set(event.flowing)
    names = [one.name for one in stage.events]
    is_held = {_key(hold) for hold in stage.consumer.holds()}
    if held != is_held:
        told, fact = held or "nothing", is_held or "nothing"
        yield f"P14: by the events {told} is held, in fact {fact}: {names}"
    is_quiet = stage.quiet()
    # No event says what a new assignment made quiet.
    if quiet != is_quiet and not stage.is_reassigned:
        told, fact = sorted(quiet), sorted(is_quiet)
        yield f"P14: by the events {told} are quiet, in fact {fact}: {names}"


def _key(hold: object) -> tuple[str, str]:
    return str(hold.scope), hold.owner  # type: ignore[attr-defined]  # a Hold


# ---------------------------------------------------------------- what was delivered


def _rest(stage: Stage) -> Iterator[str]:
    """Lift all holds and read everything there is."""
    stage.broker.kept.clear()
    positions: dict[TopicPartition, int | None] = {}
    try:
        for _ in range(_MOST_POLLS):
            stage.lift_everything()
            stage.answer_all()
            stage.poll(0)
            positions = stage.positions()
            if all(at == END for at in positions.values()) and stage.is_settled():
                return
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        yield f"a later poll {Outcome(error=error).told()}"
        return
    waiting = _waiting(stage)
    yield f"P10: {_MOST_POLLS} polls later it stands at {positions}, with {waiting}"


def _waiting(stage: Stage) -> str:
    return ", ".join(one.api for one in stage.broker.pending) or "nothing asked"


def _held(stage: Stage) -> Iterator[str]:
    """P1: nothing is delivered that was held when the last check was made."""
    for call in stage.calls:
        if not call.offsets:
            continue
        if call.checked is None:
            yield "the adapter saw no last check of a call that delivered"
            continue
        began, ended = call.checked
        for tp, offsets in call.offsets.items():
            for held in stage.holds:
                is_held = held.since < began and ended < _until(held, stage)
                if tp in held.covers and is_held:
                    yield f"P1: {_text(tp)} was held by {held.owner!r}, {offsets} came"


def _until(held: Held, stage: Stage) -> float:
    """Return until when a hold was in force for certain."""
    ends = [
        max(held.since, one.began)
        for one in stage.lifted
        if one.owner == held.owner
        and one.covers in {None, held.covers}
        and one.ended > held.began
    ]
    return min(ends, default=inf)


def _sequences(stage: Stage) -> Iterator[str]:
    """P8: each record once and in order, from where reading was to go on."""
    owned = set() if stage.is_closed else set(stage.consumer.assignment())
    for tp in sorted({tp for call in stage.calls for tp in call.offsets} | owned):
        calls = [call for call in stage.calls if tp in call.offsets]
        calls.sort(key=lambda call: call.checked or (call.began, 0))
        starts = [start for start in stage.starts if start.tp == tp]
        first = 0 if tp in {ONE, TWO} else None
        if not _fits(tp, first, calls, starts, reaches_end=tp in owned):
            came = [call.offsets[tp] for call in calls]
            told = [f"{start.why} to {start.offset}" for start in starts]
            yield f"P8: {_text(tp)} came as {came}, with {told or 'no seek'}"


def _fits(
    tp: TopicPartition,
    at: int | None,
    calls: list[Call],
    starts: list[Start],
    *,
    reaches_end: bool,
) -> bool:
    """Tell whether there is an order of starts and calls that explains the offsets."""
    if not calls and not starts:
        return at == END or not reaches_end
    for start in starts:
        is_due = not any(
            other.ended < start.began
            for other in (*calls, *starts)
            if other is not start
        )
        rest = [one for one in starts if one is not start]
        if is_due and _fits(tp, start.offset, calls, rest, reaches_end=reaches_end):
            return True
    if not calls or any(start.ended < calls[0].began for start in starts):
        return False
    offsets = calls[0].offsets[tp]
    if at is None or offsets != list(range(at, at + len(offsets))):
        return False
    return _fits(tp, at + len(offsets), calls[1:], starts, reaches_end=reaches_end)


# ---------------------------------------------------------------- what was committed


def _commits(stage: Stage) -> Iterator[str]:
    """
    What is committed is never ahead of what was delivered, and never goes back.

    Records count as delivered from the last check on that lets them pass.
    """
    for one in stage.broker.written:
        delivered = [
            offsets[-1] + 1
            for call in stage.calls
            if call.checked
            and call.checked[0] < one.at
            and (offsets := call.offsets.get(one.tp))
        ]
        chosen = [
            start.offset
            for start in stage.starts
            if start.tp == one.tp and start.began <= one.at
        ]
        elsewhere = [offset for tp, offset in stage.broker.elsewhere if tp == one.tp]
        most = max([0, *delivered, *chosen, *elsewhere])
        if one.offset > most:
            yield f"{_text(one.tp)} was committed at {one.offset}, delivered to {most}"
    if stage.may_rewind:
        return
    last: dict[TopicPartition, int] = {}
    for one in stage.broker.written:
        if one.is_accepted:
            if one.offset < last.get(one.tp, 0):
                before, now = last[one.tp], one.offset
                yield f"P8: the commit of {_text(one.tp)} went back: {before} to {now}"
            last[one.tp] = one.offset


def _text(tp: TopicPartition) -> str:
    return f"{tp.topic}:{tp.partition}"
