"""Shows a demo's progress: as a live view on a terminal, as plain lines elsewhere."""

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from attrs import evolve
from rich.console import Console, RenderableType
from rich.live import Live

from safeconsumer.cli import panels
from safeconsumer.demo import Progress, Result, Scenario
from safeconsumer.demo import table as render


class Screen(Protocol):
    """Shows the progress, in order; :meth:`report` may be called on any thread."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End showing, however the demo ended."""

    def begin(self, number: int, total: int, scenario: Scenario) -> None:
        """Show that a scenario begins."""

    def report(self, progress: Progress) -> None:
        """Show what a client does now."""

    def end(self, number: int, total: int, results: Sequence[Result]) -> None:
        """Show how a scenario ended."""


class LiveScreen:
    """Draws the partitions of both clients, side by side, while a scenario plays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._view: panels.View | None = None
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._view = None
        self._live.stop()

    def begin(self, number: int, total: int, scenario: Scenario) -> None:
        """Show the scenario's panels."""
        with self._lock:
            self._began = time.monotonic()
            self._view = panels.View(
                number=number, total=total, scenario=scenario, seconds=0.0
            )

    def report(self, progress: Progress) -> None:
        """Remember the newest progress; drawn a few times a second."""
        with self._lock:
            if self._view is not None:
                newest = {**self._view.progress, progress.client: progress}
                self._view = evolve(self._view, progress=newest)

    def end(self, number: int, total: int, results: Sequence[Result]) -> None:
        """Leave one line about the scenario above the live view."""
        self._console.print(render.finished(number, total, results))

    def _draw(self) -> RenderableType:
        with self._lock:
            view = self._view
        if view is None:
            return ""
        seconds = time.monotonic() - self._began
        return panels.live(evolve(view, seconds=seconds), self._console.width)


class PlainScreen:
    """Prints a line for each scenario and for each step of a client."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._steps: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: there is nothing to tidy up."""

    def begin(self, number: int, total: int, scenario: Scenario) -> None:
        """Print the scenario's title and story."""
        self._print(f"[{number}/{total}] {scenario.name}: {scenario.title}")
        self._print(f"      {scenario.story}")

    def report(self, progress: Progress) -> None:
        """Print a client's step when it changes."""
        with self._lock:
            if self._steps.get(progress.client) == progress.step:
                return
            self._steps[progress.client] = progress.step
            title = render.CLIENTS[progress.client].title
            self._print(f"      {title:13}  {progress.step}")

    def end(self, number: int, total: int, results: Sequence[Result]) -> None:
        """Print one line about the scenario."""
        self._console.print(render.finished(number, total, results), soft_wrap=True)

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
