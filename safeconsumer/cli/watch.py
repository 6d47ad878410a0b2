"""Draws a live view of one worker."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from safeconsumer.worker import Stats, Worker

_EVERY = 0.5
# Seconds over which throughput is computed.
_WINDOW = 10


def table(stats: Stats, per_second: float, holds: list[str], wrong: list[str]) -> Table:
    """Return throughput, lag, queue and holds as two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    rows = [
        ("state", stats.state),
        ("records/s", f"{per_second:,.0f}"),
        ("lag", "unknown" if stats.lag is None else f"{stats.lag:,}"),
        ("queued, running", f"{stats.queued:,}, {stats.running:,}"),
        ("held bytes", f"{stats.bytes:,}"),
        ("done", f"{stats.done:,}"),
        ("retries, dead letters", f"{stats.retries:,}, {stats.dead_letters:,}"),
        ("commits, refused", f"{stats.commits:,}, {stats.commits_failed:,}"),
        ("dropped", f"{stats.dropped:,}"),
        *(("hold", line) for line in holds),
        *(("wrong", line.splitlines()[0]) for line in wrong),
    ]
    for name, value in rows:
        style = "bold red" if name == "wrong" else ""
        grid.add_row(Text(name, "dim"), Text(value, style))
    return grid


@contextlib.contextmanager
def watching(worker: Worker, consumer: object, *, is_on: bool) -> Iterator[None]:
    """
    Draw the worker twice a second on stderr; as plain lines if that is no terminal.

    Args:
        worker: the worker to show.
        consumer: its consumer, whose holds are shown.
        is_on: if False, do nothing.
    """
    if not is_on:
        yield
        return
    console = Console(stderr=True, highlight=False)
    over = threading.Event()
    thread = threading.Thread(
        target=_watch,
        args=(worker, consumer, console, over),
        name="safeconsumer-watch",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(
    worker: Worker, consumer: object, console: Console, over: threading.Event
) -> None:
    seen: deque[tuple[float, int]] = deque(maxlen=int(_WINDOW / _EVERY))
    with contextlib.ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(_live(console))
        is_over = False
        while not is_over:
            is_over = over.wait(_EVERY)
            stats = worker.stats()
            seen.append((time.monotonic(), stats.done))
            speed = _speed(seen)
            if live is None:
                console.print(_line(stats, speed), markup=False, soft_wrap=True)
                continue
            holds = [
                f"{hold.scope} by {hold.owner}"
                for hold in consumer.holds()  # type: ignore[attr-defined]  # a SafeConsumer
            ]
            wrong = list(worker.healthy().reasons)
            live.update(table(stats, speed, holds, wrong))


def _live(console: Console) -> Live:
    # Handlers' own output is the program's output. It is printed above the drawing only
    # if both are on one terminal; otherwise it goes where it went before.
    return Live(console=console, transient=True, redirect_stdout=_is_one_terminal(1, 2))


def _is_one_terminal(*descriptors: int) -> bool:
    try:
        return len({os.ttyname(one) for one in descriptors}) == 1
    except OSError:
        return False


def _speed(seen: deque[tuple[float, int]]) -> float:
    (began, before), (now, done) = seen[0], seen[-1]
    return (done - before) / (now - began) if now > began else 0.0


def _line(stats: Stats, per_second: float) -> str:
    held = ",".join(stats.paused) or "-"
    lag = "unknown" if stats.lag is None else stats.lag
    return (
        f"{stats.state} {per_second:.0f}/s lag={lag} queued={stats.queued} "
        f"running={stats.running} done={stats.done} holds={held}"
    )
