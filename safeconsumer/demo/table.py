"""Formats results as a table, as plain lines and as JSON; it prints nothing."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from safeconsumer.demo import (
    SAFE,
    STOCK,
    Client,
    Counts,
    Failure,
    Result,
    Scenario,
    verdict,
)

SCHEMA = "safeconsumer.demo/1"
CLIENTS: Mapping[str, Client] = {client.name: client for client in (STOCK, SAFE)}
NAME_WIDTH = 17

_COLUMNS = (
    ("records\nproduced", "produced", None),
    ("while\npaused", "while_paused", Failure.LEAKED),
    ("after\nresume", "after_resume", None),
    ("missing", "missing", Failure.LOST),
    ("twice", "duplicated", Failure.DUPLICATED),
)


def table(scenarios: Sequence[Scenario], results: Sequence[Result]) -> Table:
    """Return scenario by client: the counts of records, the time and a verdict."""
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    grid.add_column("scenario", no_wrap=True)
    grid.add_column("client", no_wrap=True)
    for title, _, _ in _COLUMNS:
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("sec", justify="right", no_wrap=True)
    grid.add_column("result", no_wrap=True)
    for scenario in scenarios:
        rows = [result for result in results if result.scenario == scenario.name]
        for result in rows:
            grid.add_row(*_cells(result, is_first=result is rows[0]))
    return grid


def _cells(result: Result, *, is_first: bool) -> list[Text]:
    return [
        Text(result.scenario if is_first else "", "bold"),
        Text(CLIENTS[result.client].title),
        *(
            _count(getattr(result.counts, name), is_bad=failure in result.failures)
            for _, name, failure in _COLUMNS
        ),
        Text(f"{result.seconds:.1f}"),
        _verdict(result),
    ]


def _count(count: int | None, *, is_bad: bool) -> Text:
    return Text("-" if count is None else f"{count:,}", "bold red" if is_bad else "")


def _verdict(result: Result) -> Text:
    if result.failures:
        return Text("FAILED", "bold red")
    return Text("cut", "yellow") if result.error else Text("ok", "green")


def finished(number: int, total: int, results: Sequence[Result]) -> Text:
    """Return one line about a scenario that has ended."""
    line = Text(f"[{number}/{total}] {results[0].scenario:{NAME_WIDTH}}", "bold")
    for result in results:
        line.append(f"  {CLIENTS[result.client].title}: ", "not bold")
        line.append(f"{_outcome(result):20}", _style(result))
    line.rstrip()
    return line


def _style(result: Result) -> str:
    if result.failures:
        return "red"
    return "not bold yellow" if result.error else "green"


def _outcome(result: Result) -> str:
    counts = result.counts
    found = {
        Failure.LEAKED: f"{counts.while_paused} leaked",
        Failure.LOST: f"{counts.missing} lost",
        Failure.DUPLICATED: f"{counts.duplicated} twice",
    }
    told = ", ".join(found[failure] for failure in result.failures)
    return told or ("cut short" if result.error else "ok")


def troubles(results: Sequence[Result]) -> list[str]:
    """Return one line for each scenario that could not be played to its end."""
    return [
        f"{result.scenario}, {CLIENTS[result.client].title}: {result.error}"
        for result in results
        if result.error
    ]


def listing(scenarios: Sequence[Scenario]) -> list[str]:
    """Return every scenario's name and title, one per line."""
    return [f"{one.name:{NAME_WIDTH}}  {one.title}" for one in scenarios]


def document(
    scenarios: Sequence[Scenario],
    results: Sequence[Result],
    *,
    broker: str,
    versions: Mapping[str, str],
    seconds: float,
) -> dict[str, object]:
    """Return everything in the table and the sentence, for programs."""
    known = {scenario.name: scenario for scenario in scenarios}
    ended = verdict.status(scenarios, results)
    return {
        "schema": SCHEMA,
        "broker": broker,
        "versions": dict(versions),
        "seconds": round(seconds, 1),
        "results": [_entry(known[result.scenario], result) for result in results],
        "sentence": verdict.sentence(scenarios, results),
        "exit_status": int(ended),
    }


def _entry(scenario: Scenario, result: Result) -> dict[str, object]:
    return {
        "scenario": result.scenario,
        "client": result.client,
        **_counted(result.counts),
        "seconds": result.seconds,
        "failures": [failure.value for failure in result.failures],
        "as_known": verdict.is_as_known(scenario, result),
        "error": result.error,
    }


def _counted(counts: Counts) -> dict[str, int | None]:
    return {
        "produced": counts.produced,
        "delivered_while_paused": counts.while_paused,
        "delivered_after_resume": counts.after_resume,
        "missing": counts.missing,
        "duplicated": counts.duplicated,
    }
