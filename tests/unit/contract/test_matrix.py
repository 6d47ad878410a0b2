"""Every promise, and every claim about another client, has a test that proves it."""

import ast
import itertools
import re

from tests.unit.contract import claims, matrix


def test_every_promise_has_a_proof_in_each_required_test_tier():
    """The only missing proofs are those of the named exceptions and of measured promises."""
    excepted = {(one, tier) for one, tier, _, _ in matrix.EXCEPTIONS}
    measured = {("S6", "real")}
    assert matrix.missing() == excepted | measured
    assert {one for one, _ in measured} <= matrix.MEASURED.keys()


def test_excepted_promise_has_a_proof_in_another_tier():
    for one, _, tier, _ in matrix.EXCEPTIONS:
        assert matrix.proofs_in(tier, one), (one, tier)


MARKED = """
@pytest.mark.contract("P1", "P2")
def test_that_proves(): ...

@pytest.mark.nightly
@pytest.mark.contract("P1")
def test_of_the_night(): ...

@pytest.mark.contract("P1")
@pytest.mark.xfail(strict=True)
def test_that_fails(): ...
"""


def test_nightly_and_xfail_tests_do_not_count_as_proofs():
    """The mark may be on the test or on its whole file."""
    found = dict(matrix.marked(ast.parse(MARKED)))
    assert found == {"test_that_proves": ["P1", "P2"]}
    whole = "pytestmark = [pytest.mark.any_broker, pytest.mark.nightly]" + MARKED
    assert not dict(matrix.marked(ast.parse(whole)))


def test_contract_names_every_failing_test_of_a_promise():
    """The section "not promised" names no other test."""
    assert [*matrix.broken(ast.parse(MARKED))] == ["test_that_fails"]
    named = re.findall(r"`(test_\w+)`", matrix.not_promised())
    assert sorted(named) == sorted(matrix.breaches())


def test_measured_promise_names_its_benchmark():
    for benchmark in matrix.MEASURED.values():
        (name,) = re.findall(r"`python -m tests\.bench (\w+)`", benchmark)
        assert (matrix.ROOT / "tests" / "bench" / f"{name}.py").is_file()


def test_promises_are_numbered_without_a_gap():
    """Each section of the page is a promise, and a missing number is reserved."""
    text = matrix.CONTRACT.read_text(encoding="utf-8")
    found = list(matrix.promises())
    named = re.findall(r"^- \*\*([PGWS]\d+)\b", text, re.MULTILINE)
    # The page also announces extensions of existing promises.
    to_come = {*named} - {*found}
    assert len(re.findall(r"^###", text, re.MULTILINE)) == len(found)
    for letter in "PGWS":
        of_it = [one for one in found if one.startswith(letter)]
        every = (f"{letter}{number + 1}" for number in range(len(found)))
        left = (one for one in every if one not in to_come)
        assert of_it == [*itertools.islice(left, len(of_it))]


def test_every_mark_names_a_promise():
    """A mark with an unknown id would prove nothing."""
    assert sorted(matrix.proofs().keys() - matrix.promises().keys()) == []


def test_other_clients_have_proofs_for_exactly_the_promises_in_the_table():
    for client, proof in KEPT.items():
        keeps = {
            promise
            for promise, cell in kept_by(client).items()
            if not cell.startswith("no")
        }
        proved = {
            promise
            for promise, tests in matrix.proofs().items()
            if any(re.match(proof, one) for one in tests)
        }
        assert keeps == proved & kept_by(client).keys(), client


KEPT = {
    "on confluent-kafka": r"tests/broker/clients/test_(members|confluent)\.py"
    r"|tests/system/group/test_other_clients\.py::\w+_on_confluent_kafka",
    "on aiokafka": r"tests/broker/clients/test_(members|aiokafka)\.py"
    r"|tests/system/group/test_other_clients\.py::\w+_on_aiokafka",
}
"""A pattern of the tests for each column of the table."""


def kept_by(client):
    """Return a client's cell in the table for each promise; check the promises' titles."""
    text = (matrix.ROOT / "design" / "conformance.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("\n| promise |")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in rest.partition("\n\n")[0].splitlines()
    ]
    at = rows[0].index(client) + 1
    found = {row[0].partition(":")[0]: row[at] for row in rows[2:]}
    titles = {f"{one}: {title}" for one, title in matrix.promises().items()}
    assert {row[0] for row in rows[2:]} <= titles
    return found


def test_every_sentence_about_another_client_is_on_the_list():
    assert list(claims.misfits()) == []


def test_every_claim_about_another_client_has_a_proof():
    assert list(claims.unproved()) == []
