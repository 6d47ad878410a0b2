"""What results mean: the exit status and the sentence."""

from safeconsumer.cli.errors import Status
from safeconsumer.demo import Failure
from safeconsumer.demo.verdict import status
from tests.harness.cli.results import as_known, result, scenario
from tests.harness.listing import each

LOOP = scenario("ticket-loop")
STARVED = scenario("resume-starvation")


@each("failure", Failure)
def test_any_failure_of_the_safe_client_is_a_broken_promise(failure: Failure) -> None:
    """Leaked, lost or duplicated: one is enough, whatever the stock client did."""
    stock = result(LOOP.name, "stock", Failure.LEAKED)

    ended = status([LOOP], [stock, result(LOOP.name, "safe", failure)])

    assert ended is Status.FAILED


def test_another_failure_than_the_known_one_does_not_count() -> None:
    """A stock client that leaks where it is known to lose shows something else."""
    stock = result(STARVED.name, "stock", Failure.LEAKED)

    ended = status([STARVED], [stock, result(STARVED.name, "safe")])

    assert ended is Status.NOT_SHOWN


def test_records_of_a_play_cut_short_are_not_called_lost() -> None:
    """What was not asked for any more cannot be lost."""
    cut = result(LOOP.name, "safe", Failure.LOST, error="waited 20 s in vain")

    assert cut.failures == ()


def test_a_leak_in_a_play_cut_short_is_still_a_leak() -> None:
    """What was delivered cannot be taken back."""
    stock, _ = as_known(LOOP.name)
    cut = result(LOOP.name, "safe", Failure.LEAKED, error="waited 20 s in vain")

    assert status([LOOP], [stock, cut]) is Status.FAILED
