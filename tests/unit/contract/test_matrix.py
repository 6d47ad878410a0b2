"""Every promise of the contract has a test that is marked as its proof."""

import re

from tests.unit.contract import matrix


def test_every_promise_has_a_proof() -> None:
    """A marked test; or it is a promise of speed alone, and there is what measures it."""
    without = matrix.promises().keys() - matrix.proofs().keys()
    assert sorted(without) == ["S6"]
    assert without <= matrix.MEASURED.keys() <= matrix.promises().keys()


def test_what_is_measured_says_how() -> None:
    """By a benchmark that there is."""
    for said in matrix.MEASURED.values():
        (name,) = re.findall(r"`python -m tests\.bench (\w+)`", said)
        assert (matrix.ROOT / "tests" / "bench" / f"{name}.py").is_file()


def test_no_promise_is_overlooked() -> None:
    """Every section of the page is one, and none is left out in between."""
    text = matrix.CONTRACT.read_text(encoding="utf-8")
    found = list(matrix.promises())
    assert len(re.findall(r"^###", text, re.MULTILINE)) == len(found)
    for letter in "PGWS":
        of_it = [one for one in found if one.startswith(letter)]
        assert of_it == [f"{letter}{number + 1}" for number in range(len(of_it))]


def test_every_mark_names_a_promise() -> None:
    """An id that the contract does not have proves nothing."""
    assert sorted(matrix.proofs().keys() - matrix.promises().keys()) == []


def test_the_page_has_each_promise_once() -> None:
    """In the order of the contract."""
    rows = [line for line in matrix.page().splitlines() if line.startswith("| ")]
    ids = [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]]
    assert ids == list(matrix.promises())
    assert len(ids) == len(set(ids))
