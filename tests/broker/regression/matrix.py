"""
Which combinations of a test's dimensions run, and what is expected of whom.

A test says ``@matrix(stock=..., assignor=ASSIGNORS, how=HOWS)``. ``safe`` must pass
every combination it is run with. What ``stock`` does is part of the record:

- ``passes()``: kafka-python does this right.
- ``fails(reason)``: it fails each time, because the test forces the order of events.
  The test is a strict xfail, so that a kafka-python which repairs it is noticed.
- ``races(reason)``: it usually fails; counted, not strict.
- ``lacks(reason)``: it has no such call; strict as well.

By default every two values of two dimensions meet once, the client being a dimension.
A costly test runs stock once, and safe so that each value comes once. ``--full`` runs
all combinations of all tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from attrs import frozen

CLIENTS = ("stock", "safe")
EAGER = ("range", "roundrobin", "sticky")
COOPERATIVE = "cooperative-sticky"
ASSIGNORS = (*EAGER, COOPERATIVE)
PROTOCOLS = ("range", COOPERATIVE)
HOWS = ("poll", "iterate")

Case = Mapping[str, Any]
Test = Callable[..., None]


def _always(_case: Case) -> bool:
    return True


@frozen
class Verdict:
    """What the stock client does in a test, and in which of its cases."""

    reason: str = ""
    strict: bool = True
    raises: tuple[type[Exception], ...] = (AssertionError,)
    when: Callable[[Case], bool] = _always

    def marks(self, case: Case) -> list[pytest.MarkDecorator]:
        """Return the marks of the stock client's run of this case."""
        if not self.reason or not self.when(case):
            return []
        return [
            pytest.mark.xfail(
                strict=self.strict, raises=self.raises, reason=self.reason
            )
        ]


def passes() -> Verdict:
    """Expect the stock client to pass."""
    return Verdict()


def fails(reason: str, when: Callable[[Case], bool] = _always) -> Verdict:
    """Expect the stock client to fail each time, by an assertion."""
    return Verdict(reason=reason, when=when)


def races(reason: str, when: Callable[[Case], bool] = _always) -> Verdict:
    """Expect the stock client to fail now and then; pytest counts how often."""
    return Verdict(reason=reason, strict=False, when=when)


def lacks(reason: str, *raises: type[Exception]) -> Verdict:
    """Expect the stock client to refuse a call that it does not have."""
    return Verdict(reason=reason, raises=raises or (AttributeError, TypeError))


def matrix(
    *, stock: Verdict, costly: bool = False, **dimensions: Sequence[Any]
) -> Callable[[Test], Test]:
    """Run a test for both clients over its dimensions; see the module's docstring."""

    def decorate(test: Test) -> Test:
        test.matrix = stock, costly, dimensions  # type: ignore[attr-defined] - a note
        return test

    return decorate


def generate(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test that carries a matrix; ``pytest_generate_tests`` calls this."""
    noted = getattr(metafunc.function, "matrix", None)
    if noted is None:
        return
    verdict, costly, dimensions = noted
    every = {"client": CLIENTS, **dimensions}
    if metafunc.config.getoption("--full", default=False):
        cases = combinations_of(every)
    else:
        cases = each_once(dimensions) if costly else pairwise(every)
    metafunc.parametrize(list(every), list(params(verdict, cases)))


def params(verdict: Verdict, cases: Iterable[Case]) -> Iterable[Any]:
    """Yield the parameter sets of these cases, with what is expected of the stock client."""
    for case in cases:
        rest = {name: value for name, value in case.items() if name != "client"}
        stock = case["client"] == "stock"
        yield _param(case["client"], rest, verdict.marks(rest) if stock else [])


def _param(client: str, case: Case, marks: list[pytest.MarkDecorator]) -> Any:  # noqa: ANN401 - pytest's own type is private
    words = [client, *(str(value) for value in case.values())]
    return pytest.param(client, *case.values(), marks=marks, id="-".join(words))


def combinations_of(dimensions: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all cases."""
    return [
        dict(zip(dimensions, values, strict=True))
        for values in product(*dimensions.values())
    ]


def pairwise(dimensions: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """
    Return few cases in which every two values of two dimensions meet.

    Greedy: each case is the one that shows most pairs not yet seen.
    """
    cases = combinations_of(dimensions)
    if len(dimensions) < 2:
        return cases
    unseen = {pair for case in cases for pair in _pairs(case)}
    chosen = []
    while unseen:
        best = max(cases, key=lambda case: len(unseen & _pairs(case)))
        chosen.append(best)
        unseen -= _pairs(best)
    return chosen


def each_once(dimensions: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the first case for stock, and few cases with each value for safe."""
    longest = max(map(len, dimensions.values()), default=1)
    rows = [
        {name: values[row % len(values)] for name, values in dimensions.items()}
        for row in range(longest)
    ]
    return [
        {"client": "stock", **rows[0]},
        *({"client": "safe", **row} for row in rows),
    ]


def _pairs(case: Case) -> set[frozenset[tuple[str, Any]]]:
    return {frozenset(pair) for pair in combinations(case.items(), 2)}
