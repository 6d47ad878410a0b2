"""The results as tables for people: one for the terminal and the design, one shorter."""

import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator

from safeconsumer.testing.cases.catalogue import CASES
from tests.harness.conformance.choices import CHOICES
from tests.harness.conformance.clients import CLIENTS
from tests.harness.conformance.outcomes import Outcome, Verdict
from tests.harness.conformance.results import Results

SIGNS = {
    Verdict.PASSES: "yes",
    Verdict.DIFFERS: "**no**",
    Verdict.CHOSEN: "choice",
    Verdict.ABSENT: "n/a",
    Verdict.UNCLEAR: "?",
}


def sign(outcomes: Iterable[Outcome]) -> str:
    """Return what a cell of the table says; runs that differ stand side by side."""
    found = list(dict.fromkeys(SIGNS[one.verdict] for one in outcomes))
    return " / ".join(found) or " "


def full_table(results: Results) -> str:
    """Return the table of all cases, in Markdown, by parts."""
    titles = [CLIENTS[name].title for name in results.clients()]
    lines: list[str] = []
    for part in dict.fromkeys(CASES[name].part for name in results.cases()):
        lines += ["", _row([part, *titles]), _row(["---"] * (len(titles) + 1))]
        lines += [
            _row([CASES[name].rule, *_cells(results, name)])
            for name in results.cases()
            if CASES[name].part == part
        ]
    return "\n".join(lines).strip()


def short_table(results: Results) -> str:
    """Return, in Markdown, how many cases of each part each client passes."""
    parts = list(dict.fromkeys(CASES[name].part for name in results.cases()))
    lines = [_row(["", *parts]), _row(["---"] * (len(parts) + 1))]
    for client in results.clients():
        counts = [_count(results, client, part) for part in parts]
        lines.append(_row([CLIENTS[client].title, *counts]))
    return "\n".join(lines)


def remarks(results: Results) -> str:
    """Return what was seen and of whom, one line per case, in Markdown."""
    lines = []
    for case in results.cases():
        seen: dict[str, list[str]] = {}
        for client in results.clients():
            if text := _seen(results.cell(case, client)):
                seen.setdefault(text, []).append(CLIENTS[client].title)
        if seen:
            texts = [f"{text} ({'; '.join(titles)})" for text, titles in seen.items()]
            lines.append(f"- `{case}`: {'. '.join(texts)}.")
    return "\n".join(lines)


def choices() -> str:
    """Return the documented choices with their links, in Markdown."""
    return "\n".join(
        f"- {', '.join(one.families)}; {', '.join(f'`{name}`' for name in one.cases)}: "
        f"{one.text} {' '.join(f'<{link}>' for link in one.links)}"
        for one in CHOICES
    )


def conditions(results: Results) -> str:
    """Return when it was, on what, with which versions, and where runs differ."""
    differing = [
        f"`{case}` of {CLIENTS[client].title}" for case, client in results.differing()
    ]
    return (
        f"{stamp(results)}. Runs: {results.runs}; they differ in "
        f"{', '.join(differing) or 'nothing'}."
    )


def stamp(results: Results) -> str:
    """Return date, machine, broker and versions in one line."""
    versions = sorted(
        {
            f"{name} {version}"
            for client in results.clients()
            for name, version in results.versions(client).items()
        }
    )
    return (
        f"{results.date[:10]}, {os.cpu_count()} cores (cloud VM), Python "
        f"{platform.python_version()}, {results.broker}; {', '.join(versions)}"
    )


def _cells(results: Results, case: str) -> Iterator[str]:
    for client in results.clients():
        yield sign(results.cell(case, client))


def _count(results: Results, client: str, part: str) -> str:
    found = Counter(
        results.verdict(case, client)
        for case in results.cases()
        if CASES[case].part == part
    )
    there = found.total() - found[Verdict.ABSENT]
    if not there:
        return "n/a"
    chosen = f", {found[Verdict.CHOSEN]} by choice" if found[Verdict.CHOSEN] else ""
    return f"{found[Verdict.PASSES]} of {there}{chosen}"


def _seen(outcomes: Iterable[Outcome]) -> str:
    texts = [one.seen for one in outcomes if one.verdict != Verdict.ABSENT]
    return " / ".join(dict.fromkeys(filter(None, texts)))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
