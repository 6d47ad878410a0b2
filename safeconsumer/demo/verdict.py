"""Turns the results of a demo into one exit status and one sentence."""

from collections.abc import Sequence

from attrs import frozen

from safeconsumer.cli.errors import Status
from safeconsumer.demo import SAFE, STOCK, Result, Scenario


@frozen(kw_only=True)
class Totals:
    """The sums of one client's results in all scenarios."""

    leaked: int
    lost: int
    duplicated: int
    failed: int
    played: int


def totals(results: Sequence[Result], client: str) -> Totals:
    """Add up one client's results."""
    own = [result for result in results if result.client == client]
    return Totals(
        leaked=sum(result.counts.while_paused or 0 for result in own),
        lost=sum(result.counts.missing for result in own if not result.error),
        duplicated=sum(result.counts.duplicated for result in own),
        failed=sum(bool(result.failures) for result in own),
        played=len(own),
    )


def is_as_known(scenario: Scenario, result: Result) -> bool:
    """Whether a result is as promised for its client, or as known."""
    if result.client == SAFE.name:
        return not result.failures
    return scenario.stock_failure in result.failures


def status(scenarios: Sequence[Scenario], results: Sequence[Result]) -> Status:
    """Return the status of the demo; the worst result decides."""
    known = {scenario.name: scenario for scenario in scenarios}
    odd = {
        result.client
        for result in results
        if not is_as_known(known[result.scenario], result)
    }
    if SAFE.name in odd:
        return Status.FAILED
    if any(result.error for result in results):
        return Status.NOT_PLAYED
    return Status.NOT_SHOWN if odd else Status.DONE


def sentence(scenarios: Sequence[Scenario], results: Sequence[Result]) -> str:
    """Summarise the results in one sentence."""
    safe, stock = totals(results, SAFE.name), totals(results, STOCK.name)
    many = "" if safe.played == 1 else "s"
    return (
        f"{SAFE.title} leaked {safe.leaked:,}, lost {safe.lost:,} and duplicated "
        f"{safe.duplicated:,} records in {safe.played} scenario{many}; "
        f"{STOCK.title} failed in {stock.failed} of {stock.played}: it delivered "
        f"{stock.leaked:,} records while paused, never delivered {stock.lost:,} "
        f"and delivered {stock.duplicated:,} twice"
        f"{_reservation(status(scenarios, results))}."
    )


def _reservation(ended: Status) -> str:
    return {
        Status.NOT_SHOWN: f" - but {STOCK.title} did not fail wherever known",
        Status.NOT_PLAYED: " - but not every scenario could be played to its end",
        Status.FAILED: f" - {SAFE.title} broke a promise",
    }.get(ended, "")
