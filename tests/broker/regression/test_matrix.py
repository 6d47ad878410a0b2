"""The matrix meets every pair, and its expectations are strict where they claim to be."""

from itertools import combinations

from tests.broker.regression.matrix import (
    ASSIGNORS,
    CLIENTS,
    HOWS,
    PROTOCOLS,
    combinations_of,
    each_once,
    fails,
    pairwise,
    params,
    passes,
    races,
)

DIMENSIONS = {"client": CLIENTS, "assignor": ASSIGNORS, "how": HOWS}


def test_every_two_values_of_two_dimensions_meet() -> None:
    """All pairs are there, in fewer cases than there are combinations."""
    cases = pairwise(DIMENSIONS)
    met = {frozenset(pair) for case in cases for pair in combinations(case.items(), 2)}
    every = combinations_of(DIMENSIONS)
    assert met == {
        frozenset(pair) for case in every for pair in combinations(case.items(), 2)
    }
    assert len(cases) < len(every)


def test_full_runs_every_combination() -> None:
    """``--full`` leaves nothing out."""
    assert len(list(params(passes(), combinations_of(DIMENSIONS)))) == 16


def test_a_costly_test_runs_each_value_once() -> None:
    """Once for stock; for safe as often as the longest dimension asks."""
    cases = each_once({"assignor": PROTOCOLS, "how": HOWS})
    assert [case["client"] for case in cases] == ["stock", "safe", "safe"]
    ours = cases[1:]
    assert {case["assignor"] for case in ours} == set(PROTOCOLS)
    assert {case["how"] for case in ours} == set(HOWS)


def test_only_the_stock_client_is_expected_to_fail() -> None:
    """No mark ever excuses ours."""
    marked = {
        param.values[0]
        for param in params(fails("why"), combinations_of(DIMENSIONS))
        if param.marks
    }
    assert marked == {"stock"}


def test_a_forced_failure_is_strict_and_a_race_is_not() -> None:
    """A kafka-python that repairs a forced failure fails the suite."""
    (forced,) = fails("why").marks({})
    (raced,) = races("why").marks({})
    assert (forced.kwargs["strict"], raced.kwargs["strict"]) == (True, False)
    assert forced.kwargs["raises"] == (AssertionError,)
