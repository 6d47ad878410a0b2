"""Draws the live view of a scenario, one panel for each client; it prints nothing."""

from collections.abc import Mapping

from attrs import field, frozen
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from safeconsumer.demo import (
    STOCK,
    PartitionView,
    Progress,
    Scenario,
    State,
)
from safeconsumer.demo.table import CLIENTS

WIDEST = 100

# The most partitions any scenario has, so that the panels keep their height.
_ROWS = 8

_LOOK = {
    State.PAUSED: ("■ paused", "green"),
    State.FLOWING: ("▸ flowing", "cyan"),
    State.PAUSE_LOST: ("✗ unpaused", "bold red"),
    State.ELSEWHERE: ("· elsewhere", "dim"),
}


@frozen(kw_only=True)
class View:
    """What the live view shows at one moment."""

    number: int
    total: int
    scenario: Scenario
    seconds: float
    progress: Mapping[str, Progress] = field(factory=dict)


def live(view: View, width: int) -> RenderableType:
    """Return the live view for a terminal of so many columns."""
    wide = min(width, WIDEST)
    half = wide // 2
    scenario = view.scenario
    heading = Text(f"[{view.number}/{view.total}] {scenario.name}", "bold")
    heading.append(f"  {scenario.title}", "not bold")
    heading.append(f"  {view.seconds:.0f} s", "not bold dim")
    story = Text(scenario.story, "dim")
    panels = Table.grid()
    for _ in CLIENTS:
        panels.add_column(width=half)
    panels.add_row(*(_panel(view, name) for name in CLIENTS))
    block = Table.grid()
    block.add_column(width=half * 2)
    for part in (heading, story, panels):
        block.add_row(part)
    return block


def _panel(view: View, name: str) -> Panel:
    scenario = view.scenario
    code = scenario.stock_code if name == STOCK.name else scenario.safe_code
    progress = view.progress.get(name)
    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(width=11, no_wrap=True)
    rows.add_column(width=11, no_wrap=True)
    rows.add_column(width=7, justify="right", no_wrap=True)
    rows.add_column(width=5, justify="right", no_wrap=True)
    for partition in progress.partitions if progress else ():
        rows.add_row(*_cells(partition))
    step = Text(progress.step if progress else "", "italic")
    body = Group(Text(code, "cyan", no_wrap=True), Text(), rows, Text(), step)
    return Panel(
        body,
        title=CLIENTS[name].title,
        border_style="red" if _has_failed(progress) else "",
        padding=(0, 0),
        height=_ROWS + 6,
    )


def _has_failed(progress: Progress | None) -> bool:
    return progress is not None and any(one.wrong for one in progress.partitions)


def _cells(partition: PartitionView) -> tuple[Text, ...]:
    word, style = _LOOK[partition.state]
    wrong = f"+{partition.wrong}" if partition.wrong else ""
    return (
        Text(partition.label),
        Text(word, style),
        Text(f"{partition.delivered}/{partition.produced}"),
        Text(wrong, "bold red"),
    )
