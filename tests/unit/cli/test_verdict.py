"""What results mean: the exit status and the sentence."""

import pytest

from safeconsumer.cli.errors import Status
from safeconsumer.cli.verdict import sentence, status
from safeconsumer.testing.scenarios import SCENARIOS, Failure, Result
from tests.harness.cli.results import as_known, result, scenario
from tests.harness.listing import each

LOOP = scenario("ticket-loop")
STARVED = scenario("resume-starvation")


def test_shown_when_both_did_what_is_known_of_them() -> None:
    """Status 0 needs a clean safe client and a stock one that failed as known."""
    results = [each for one in SCENARIOS for each in as_known(one.name)]

    assert status(SCENARIOS, results) is Status.DONE


@each("failure", Failure)
def test_any_failure_of_the_safe_client_is_a_broken_promise(failure: Failure) -> None:
    """Leaked, lost or duplicated: one is enough, whatever the stock client did."""
    stock = result(LOOP.name, "stock", Failure.LEAKED)

    ended = status([LOOP], [stock, result(LOOP.name, "safe", failure)])

    assert ended is Status.FAILED


def test_a_stock_client_that_holds_is_no_demonstration() -> None:
    """Exit 0 also says that the stock client failed."""
    results = [result(LOOP.name, "stock"), result(LOOP.name, "safe")]

    assert status([LOOP], results) is Status.NOT_SHOWN


def test_another_failure_than_the_known_one_does_not_count() -> None:
    """A stock client that leaks where it is known to lose shows something else."""
    stock = result(STARVED.name, "stock", Failure.LEAKED)

    ended = status([STARVED], [stock, result(STARVED.name, "safe")])

    assert ended is Status.NOT_SHOWN


def test_one_play_that_was_cut_short_is_told() -> None:
    """A scenario that could not be played proves nothing about either client."""
    stock, safe = as_known(LOOP.name)
    cut = result(STARVED.name, "stock", error="waited 20 s in vain")

    ended = status([LOOP, STARVED], [stock, safe, cut])

    assert ended is Status.NOT_PLAYED


def test_records_of_a_play_cut_short_are_not_called_lost() -> None:
    """What was not asked for any more cannot be lost."""
    cut = result(LOOP.name, "safe", Failure.LOST, error="waited 20 s in vain")

    assert cut.failures == ()


def test_a_leak_in_a_play_cut_short_is_still_a_leak() -> None:
    """What was delivered cannot be taken back."""
    stock, _ = as_known(LOOP.name)
    cut = result(LOOP.name, "safe", Failure.LEAKED, error="waited 20 s in vain")

    assert status([LOOP], [stock, cut]) is Status.FAILED


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (
            as_known(LOOP.name),
            (
                "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 1 scenario; "
                "KafkaConsumer failed in 1 of 1: it delivered 7 records while paused, "
                "never delivered 0 and delivered 0 twice."
            ),
        ),
        (
            [result(LOOP.name, "stock"), result(LOOP.name, "safe")],
            (
                "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 1 scenario; "
                "KafkaConsumer failed in 0 of 1: it delivered 0 records while paused, "
                "never delivered 0 and delivered 0 twice"
                " - but KafkaConsumer did not fail wherever known."
            ),
        ),
    ],
)
def test_one_sentence_says_it(results: list[Result], expected: str) -> None:
    """With the figures, and with a reservation where there is one."""
    assert expected == sentence([LOOP], results)
