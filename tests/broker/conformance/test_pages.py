"""The tables, the marks on the pages, and the registers, without any client."""

import inspect

import pytest

from safeconsumer.testing.cases.catalogue import CASES, PARTS
from safeconsumer.testing.cases.consumer import Consumer
from safeconsumer.testing.cases.member import found
from tests.broker.conformance.expected import STOCK, is_known
from tests.harness.conformance import pages, report
from tests.harness.conformance.choices import CHOICES, choice_of
from tests.harness.conformance.clients import CLIENTS, IN_CI
from tests.harness.conformance.outcomes import Outcome, Verdict
from tests.harness.conformance.results import Results
from tests.harness.conformance.run import Tried

ABSENT = "topic-with-later-partitions"
NOT_ABOUT_PAUSING = "a-join-outlasts-its-poll"
CHOSEN = "moves-and-returns"


def results(*verdicts: dict[str, Verdict]) -> Results:
    """Return results of stock, one run for each of these."""
    return Results(
        tried=tuple(
            Tried(
                client="stock",
                versions={"kafka-python": "3.0.12"},
                outcomes=tuple(
                    Outcome(case=case, client="stock", verdict=verdict, seen="seen")
                    for case, verdict in run.items()
                ),
            )
            for run in verdicts
        ),
        broker="a broker",
    )


def test_every_choice_is_about_cases_and_families_that_exist() -> None:
    """And says where it is documented."""
    families = {client.family for client in CLIENTS.values()}
    for choice in CHOICES:
        assert set(choice.cases) <= set(CASES)
        assert set(choice.families) <= families - {"safeconsumer"}
        assert all(link.startswith("https://") for link in choice.links)


def test_nothing_excuses_ours() -> None:
    """A choice of ours is a rule of the contract, and that is what the cases say."""
    assert not any(choice_of(CLIENTS["safe"], one) for one in CASES.values())


def test_starving_is_known_of_stock_and_of_nobody_else() -> None:
    """Where it is no race, only that is known."""

    def starved(client: str, case: str) -> Outcome:
        return Outcome(case=case, client=client, verdict=Verdict.DIFFERS, starved=True)

    assert is_known(starved("stock", "still-paused-when-a-member-joins"))
    assert not is_known(starved("stock", CHOSEN))
    assert not is_known(starved("safe", "still-paused-when-a-member-joins"))


def test_only_an_eager_client_may_lose_what_it_keeps() -> None:
    """A cooperative one revokes nothing of it."""
    kept = CASES["still-paused-when-a-member-joins"]
    assert choice_of(CLIENTS["stock"], kept)
    assert not choice_of(CLIENTS["stock-cooperative"], kept)


def test_what_is_known_is_about_cases_that_exist() -> None:
    """And what runs in CI needs no environment of its own."""
    assert set(STOCK) <= set(CASES)
    assert all(CLIENTS[name].needs is None for name in IN_CI)
    assert {one.part for one in CASES.values()} == set(PARTS)


@pytest.mark.parametrize("case", [name for name in CASES if name != NOT_ABOUT_PAUSING])
def test_a_case_says_what_kafka_python_does(case: str) -> None:
    """Who runs it against another class reads there what to compare with."""
    text = " ".join((CASES[case].run.__doc__ or "").split())
    assert ("kafka-python 3.0 passes" in text) == (case not in STOCK)
    assert "kafka-python" in text


@pytest.mark.parametrize("spec", sorted({one.adapter for one in CLIENTS.values()}))
def test_an_adapter_has_every_call_of_the_neutral_interface(spec: str) -> None:
    """What ``Consumer`` can be told, each adapter can do or says that it cannot."""
    adapter = found(spec)
    own = {"begin_close", "begin_poll", "count", "cpu", "end_close", "end_poll"}
    calls = (
        {
            call
            for call, _ in inspect.getmembers(Consumer, inspect.isfunction)
            if not call.startswith("_")
        }
        - own
        - {"has_more_than", "offsets"}
    )
    assert {*calls, "open", "versions"} <= set(dir(adapter))


def test_runs_that_differ_are_shown_side_by_side() -> None:
    """The cell has both, the line below names it, and it counts for nothing."""
    both = results({CHOSEN: Verdict.CHOSEN}, {CHOSEN: Verdict.PASSES})
    assert "| choice / yes |" in report.full_table(both)
    assert f"`{CHOSEN}` of kafka-python 3.0" in report.conditions(both)
    assert "| kafka-python 3.0 | 0 of 1 |" in report.short_table(both)


def test_a_short_line_counts_what_there_is() -> None:
    """What a client does not have is not counted against it."""
    found = results({CHOSEN: Verdict.CHOSEN, ABSENT: Verdict.ABSENT})
    assert "| kafka-python 3.0 | 0 of 1, 1 by choice | n/a |" in report.short_table(
        found
    )
    assert "they differ in nothing" in report.conditions(found)


def test_the_pages_have_their_marks() -> None:
    """Else ``--write`` would have nowhere to write."""
    design = pages.DESIGN.read_text("utf-8")
    for name in ("conditions", "table", "remarks", "choices"):
        assert "new" in pages.put(design, name, "new")
    assert "new" in pages.put(pages.README.read_text("utf-8"), "conformance", "new")


def test_a_page_without_marks_is_refused() -> None:
    """Rather than left as it was."""
    with pytest.raises(ValueError, match="lacks"):
        pages.put("nothing", "table", "new")
