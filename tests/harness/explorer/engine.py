"""
Explores two operations on one subject, with one preemption at every place.

Operation A runs up to its k-th line in the modules under test; there operation B runs,
whole, on another thread or as a signal handler on the same one; then A goes on. Done
for every k, each time on a subject of its own, that is every order of the two with one
switch from A to B.
"""

from __future__ import annotations

import contextlib
import gc
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

from attrs import define, field, frozen

# How often B is looked at while A waits for it, seconds.
_LOOK = 0.0003
# B is blocked if it stood at one and the same instruction for so many looks and sleeps.
# Where the system does not say that it sleeps, it must have stood still for longer.
_LOOKS_ASLEEP, _LOOKS = 3, 60
# What stands still for so long is a deadlock: looks of the watcher, seconds between.
_STUCK_LOOKS, _STUCK_LOOK = 8, 0.1
# A pair that ends in deadlocks is not explored to its end.
_DEADLOCKS = 3
# Threads are not made to give way in the middle of what they do, so that a run that has
# gone wrong goes wrong again. seconds
_SWITCH_INTERVAL = 0.5

# So many runs leave cyclic garbage behind before it is collected.
_COLLECT_EVERY = 200
# So many frames tell where an error was raised.
_TOLD = 6

_HANDLER_SIGNAL, _STUCK_SIGNAL = signal.SIGUSR1, signal.SIGUSR2


class InfeasibleError(BaseException):
    """Raised by an operation that could not have run at this place."""


class _StuckError(BaseException):
    """Raised in the main thread to end a deadlock."""


@frozen
class Outcome:
    """What an operation returned or raised."""

    value: Any = None
    error: BaseException | None = None

    def told(self) -> str:
        """Describe the error, and where it was raised, innermost first."""
        assert self.error is not None
        frames = traceback.extract_tb(self.error.__traceback__)[1:]
        stack = [(one.filename, one.lineno or 0, one.name) for one in reversed(frames)]
        return "\n".join([f"raised {self.error!r}", *_lines(stack[:_TOLD])])


@frozen
class Place:
    """Where A was when B came."""

    k: int  # how many lines A had begun, from 1
    # file, line and function of A's frames, innermost first
    stack: tuple[tuple[str, int, str], ...]

    def __str__(self) -> str:
        file, line, function = self.stack[0]
        return f"{_short(file)}:{line} ({function})"


@frozen
class Wrong:
    """One order of the two operations that broke a rule."""

    place: Place | None  # where A was; None if B came after it
    messages: tuple[str, ...]  # what is wrong
    # the stack at which B waited for A, innermost first; empty if it did not
    blocked: tuple[tuple[str, int, str], ...] = ()

    def __str__(self) -> str:
        where = (
            "A before B" if self.place is None else f"k={self.place.k} at {self.place}"
        )
        return f"{where}: {'; '.join(self.messages)}"

    def stacks(self) -> str:
        """Return where both stood, a frame a line."""
        lines = []
        if self.place is not None:
            lines += ["A stood at", *_lines(self.place.stack)]
        if self.blocked:
            lines += ["B waited at", *_lines(self.blocked)]
        elif self.place is not None:
            lines.append("B ran whole there")
        return "\n".join(lines)


@define
class Exploration:
    """What was found out about a pair."""

    places: int = 0  # how many lines A has
    tried: int = 0  # at how many of them B was let in
    blocked: int = 0  # at how many B had to wait for A
    infeasible: int = 0  # at how many B could not have run
    seconds: float = 0.0  # how long it took
    # what went wrong, in the order of A's lines
    wrong: list[Wrong] = field(factory=list)


@define(eq=False)
class _Run:
    """One run: what has been seen of it so far."""

    place: Place | None = None
    a: Outcome | None = None
    b: Outcome | None = None
    is_begun: bool = False
    is_over: bool = False
    blocked: tuple[tuple[str, int, str], ...] = ()
    stuck: list[str] = field(factory=list)


Operation = Callable[[Any], object]
Check = Callable[[Any, Outcome, Outcome], Iterable[str]]
Places = Callable[[Sequence[tuple[CodeType, int]]], Iterable[int]]


@frozen
class Meeting:
    """Two operations, and what they work on."""

    # makes the subject of one run, and ends it; let it take milliseconds
    make: Callable[[], contextlib.AbstractContextManager[Any]]
    a: Operation  # the operation that is interrupted
    b: Operation  # the operation that comes in between
    check: Check  # says what is wrong afterwards: nothing, or a text each
    # whether B is a signal handler on A's thread; else it runs on another one
    as_handler: bool = False


def every(places: Sequence[object]) -> Iterable[int]:
    return range(1, len(places) + 1)


def sample(most: int, seed: object) -> Places:
    """Choose ``most`` places: each line where it is reached first, then others by chance."""

    def choose(places: Sequence[tuple[CodeType, int]]) -> Iterable[int]:
        if len(places) <= most:
            return every(places)
        chance = random.Random(str(seed))  # noqa: S311 - repeatable, not secret
        first: dict[tuple[CodeType, int], int] = {}
        for k, place in enumerate(places, 1):
            first.setdefault(place, k)
        firsts = list(first.values())
        if len(firsts) >= most:
            return sorted(chance.sample(firsts, most))
        rest = sorted(set(every(places)).difference(firsts))
        return sorted(firsts + chance.sample(rest, most - len(firsts)))

    return choose


class Explorer:
    """
    Explores pairs, one after the other; a context manager, used on the main thread.

    It has one thread for B and one that watches for deadlocks. On the way out both are
    gone, and what it changed in the interpreter (trace function, signal handlers,
    switch interval, garbage collection) is as it was. Only a B that hangs for ever
    after A has ended leaves its thread behind: nothing can end it.

    Args:
        inside: whose lines are places: begins of file names.
    """

    def __init__(self, inside: Sequence[str]) -> None:
        self._stack = contextlib.ExitStack()
        self._tracer = _Tracer(inside)
        self._other = _Other()
        self._run: _Run | None = None
        self._runs = 0
        self._handler_job: Callable[[], None] | None = None

    @property
    def other(self) -> threading.Thread:
        return self._other.thread

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(_SWITCH_INTERVAL)
            if gc.isenabled():
                # A collection in the middle of sys._current_frames() can run code that
                # gives way, under a lock of the interpreter that the next call waits
                # for (python/cpython#106883; 3.11 is not cured).
                undo.callback(gc.enable)
                gc.disable()
            gc.freeze()  # what is here stays; only what runs leave behind is looked at
            undo.callback(gc.unfreeze)
            for number, handler in (
                (_HANDLER_SIGNAL, self._handle),
                (_STUCK_SIGNAL, self._break),
            ):
                undo.callback(signal.signal, number, signal.signal(number, handler))
            undo.callback(self._end_other)
            closing = threading.Event()
            watcher = threading.Thread(
                target=self._watch,
                args=(closing, threading.current_thread()),
                name="explorer-watcher",
                daemon=True,
            )
            undo.callback(watcher.join)
            undo.callback(closing.set)
            watcher.start()
            self._stack = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _end_other(self) -> None:
        self._other.end()

    # ------------------------------------------------------------ exploring

    def explore(
        self,
        meeting: Meeting,
        *,
        places: Places = every,
        stop_at: int | None = None,
    ) -> Exploration:
        """Let B in at the chosen places of A, and check what came of it."""
        began = time.monotonic()
        found = Exploration()
        self._try(found, meeting, 0)
        reached = self._tracer.places
        found.places = len(reached)
        deadlocks = 0
        for k in places(reached):
            before = len(found.wrong)
            deadlocks += self._try(found, meeting, k)
            is_enough = stop_at is not None and before < len(found.wrong) >= stop_at
            if is_enough or deadlocks >= _DEADLOCKS:
                break
        found.seconds = time.monotonic() - began
        return found

    def _try(self, found: Exploration, meeting: Meeting, k: int) -> bool:
        """Make one run, and return whether it was a deadlock."""
        run = _Run()
        self._runs += 1
        if self._runs % _COLLECT_EVERY == 0:
            gc.collect()
        with meeting.make() as subject:
            self._run = run
            try:
                self._run_both(run, meeting, subject, k)
            finally:
                self._run = None
            if k and run.place is not None:
                found.tried += 1
                found.blocked += bool(run.blocked)
            if run.stuck:
                messages = ["deadlock", *run.stuck]
            elif isinstance(run.b and run.b.error, InfeasibleError):
                found.infeasible += 1
                messages = []
            else:
                messages = _checked(meeting.check, subject, run)
        if messages:
            found.wrong.append(Wrong(run.place, tuple(messages), run.blocked))
        return bool(run.stuck)

    def _run_both(self, run: _Run, meeting: Meeting, subject: object, k: int) -> None:
        def other() -> None:
            run.b = _outcome(meeting.b, subject)

        def come(frame: FrameType) -> None:
            run.place = Place(k, _stack(frame))
            run.is_begun = True
            if meeting.as_handler:
                self._as_handler(other)
            else:
                self._other.begin(other)
                if not self._other.ended_or_blocked():
                    run.blocked = self._other.stack()

        with self._tracer.tracing(k, come):
            run.a = _outcome(meeting.a, subject)
        try:
            if not run.is_begun and meeting.as_handler:
                self._as_handler(other)
            elif not run.is_begun:
                self._other.begin(other)
                self._other.wait()
            elif run.blocked or not (meeting.as_handler or run.b):
                self._other.wait()
        except _StuckError:
            self._other.abandon()
            self._other = _Other()
        run.is_over = True

    # ------------------------------------------------------------ B as a handler

    def _as_handler(self, job: Callable[[], None]) -> None:
        self._handler_job = job
        signal.raise_signal(_HANDLER_SIGNAL)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        job, self._handler_job = self._handler_job, None
        if job is not None:
            job()

    # ------------------------------------------------------------ deadlocks

    def _break(self, _number: int, _frame: FrameType | None) -> None:
        run = self._run
        if run is not None and run.stuck and not run.is_over:
            raise _StuckError

    def _watch(self, closing: threading.Event, main: threading.Thread) -> None:
        last: object = None
        looks = 0
        while not closing.wait(_STUCK_LOOK):
            run, other = self._run, self._other
            now = run and (run, _progress(main), _progress(other.thread))
            looks = looks + 1 if now is not None and now == last else 0
            last = now
            if run is not None and looks >= _STUCK_LOOKS:
                frames = sys._current_frames()
                for name, ident in (("main thread", main.ident), ("B", other.ident)):
                    if ident in frames and not (name == "B" and other.is_idle):
                        told = "\n".join(_lines(_stack(frames[ident])))
                        run.stuck.append(f"{name} stands still at\n{told}")
                looks = 0
                assert main.ident is not None
                signal.pthread_kill(main.ident, _STUCK_SIGNAL)


def _outcome(operation: Operation, subject: object) -> Outcome:
    try:
        return Outcome(operation(subject))
    except KeyboardInterrupt:
        raise  # somebody wants to end the exploration
    except BaseException as error:  # noqa: BLE001 - what it raised is what it saw
        return Outcome(error=error)


def _checked(check: Check, subject: object, run: _Run) -> list[str]:
    assert run.a is not None
    assert run.b is not None
    try:
        return list(check(subject, run.a, run.b))
    except Exception as error:  # noqa: BLE001 - what cannot be checked is wrong
        return [f"the check {Outcome(error=error).told()}"]


# ---------------------------------------------------------------- the other thread


class _Other:
    """The thread of B, used for many runs."""

    def __init__(self) -> None:
        self._go, self._done = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._job: Callable[[], None] | None = None
        self.is_idle = True
        self._has_begun = self._is_abandoned = False
        self.thread = threading.Thread(
            target=self._loop, name="explorer-b", daemon=True
        )
        self.thread.start()

    @property
    def ident(self) -> int:
        ident = self.thread.ident
        assert ident is not None
        return ident

    def _loop(self) -> None:
        while True:
            self._go.acquire()
            job = self._job
            if job is None:
                return
            self._has_begun = True
            job()
            if self._is_abandoned:
                return
            self.is_idle = True
            self._done.release()

    def abandon(self) -> None:
        """Leave it alone: it hangs, and nothing can end it. If it goes on, it ends."""
        self._is_abandoned = True

    def begin(self, job: Callable[[], None]) -> None:
        self._job = job
        self.is_idle = self._has_begun = False
        self._go.release()

    def wait(self) -> None:
        self._done.acquire()

    def ended_or_blocked(self) -> bool:
        """Wait until it has ended (True), or waits itself (False)."""
        last, looks = None, 0
        while not self._done.acquire(timeout=_LOOK):
            now = _position(self.ident)
            looks = looks + 1 if now == last and self._has_begun else 0
            last = now
            if looks >= _LOOKS or (looks >= _LOOKS_ASLEEP and self._is_asleep()):
                return False
        return True

    def _is_asleep(self) -> bool:
        # On Linux; a thread that only waits for a processor stands still as well.
        try:
            with open(f"/proc/self/task/{self.thread.native_id}/stat", "rb") as file:  # noqa: PTH123 - asked often
                return file.read().rpartition(b")")[2].split()[0] == b"S"
        except OSError:
            return False

    def stack(self) -> tuple[tuple[str, int, str], ...]:
        frame = sys._current_frames().get(self.ident)
        return () if frame is None else _stack(frame)

    def end(self) -> None:
        """End the thread, if it does not hang."""
        if self.is_idle or self._done.acquire(timeout=1):
            self._job = None
            self._go.release()
            self.thread.join()


def _position(ident: int) -> tuple[int, int] | None:
    """Return at which instruction a thread stands; None if it is not there."""
    frame = sys._current_frames().get(ident)
    return None if frame is None else (id(frame), frame.f_lasti)


def _progress(thread: threading.Thread) -> tuple[object, str]:
    """Return where a thread stands, and how often it has run: it may wait in a loop."""
    assert thread.ident is not None
    ran = ""
    with contextlib.suppress(OSError):  # Linux has it
        ran = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
    return _position(thread.ident), ran


# ---------------------------------------------------------------- tracing


class _Tracer:
    """Calls back at the k-th line, and notes all lines if k is 0."""

    def __init__(self, inside: Sequence[str]) -> None:
        self._inside = tuple(inside)
        self._known: dict[CodeType, bool] = {}
        self.places: list[tuple[CodeType, int]] = []

    def is_inside(self, code: CodeType) -> bool:
        """Tell whether a function's lines count."""
        known = self._known.get(code)
        if known is None:
            known = code.co_filename.startswith(self._inside)
            self._known[code] = known
        return known

    @contextlib.contextmanager
    def tracing(self, k: int, come: Callable[[FrameType], None]) -> Iterator[None]:
        count, known, is_inside = 0, self._known, self.is_inside
        places = self.places = self.places if k else []

        def trace(frame: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401 - as settrace has it
            nonlocal count
            if event == "line":
                count += 1
                if not k:
                    places.append((frame.f_code, frame.f_lineno))
                elif count == k:
                    sys.settrace(None)
                    come(frame)
                    return None
            if event == "call":
                code = frame.f_code
                if not (known[code] if code in known else is_inside(code)):
                    return None
            return trace if not k or count < k else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)


# ---------------------------------------------------------------- telling

_HERE = str(Path(__file__))


def _stack(frame: FrameType | None) -> tuple[tuple[str, int, str], ...]:
    found = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename != _HERE:
            found.append((code.co_filename, frame.f_lineno or 0, code.co_qualname))
        elif found:
            break  # what called the operation tells nothing
        frame = frame.f_back
    return tuple(found)


def _lines(stack: Iterable[tuple[str, int, str]]) -> list[str]:
    return [f"  {_short(file)}:{line} in {name}" for file, line, name in stack]


def _short(file: str) -> str:
    parts = Path(file).parts
    for root in ("safeconsumer", "tests", "site-packages"):
        if root in parts:
            at = len(parts) - 1 - parts[::-1].index(root)
            return "/".join(parts[at + (root == "site-packages") :])
    return file
