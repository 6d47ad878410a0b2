"""The judge's verdict on each fleet matches the fleet's row in the table of verdicts."""

import re

import pytest

from safeconsumer.audit import rules
from safeconsumer.audit.results import CHECKS
from safeconsumer.audit.rules import RULES
from tests.harness.audit.fleets import BAD, CASES, DRAINED, GOOD, check_of
from tests.harness.audit.journals import failed, judged, outcome, unjudged
from tests.harness.docs.pages import ROOT
from tests.harness.listing import short

ENDS = "the history ends at 1970-01-01 00:26:40Z: write it after the journals"
LACKS = (
    "the holds topics lack the hold of orders by operator:eve that entry 5 of a proves: "
    "they are of another cluster, or were recreated since"
)


@pytest.mark.contract("S5")
@pytest.mark.parametrize("fleet", CASES, ids=short)
def test_verdict_on_a_fleet_matches_its_table_row(fleet):
    assert outcome(fleet(), **fleet.settings) == fleet.text


@pytest.mark.contract("S5")
@pytest.mark.parametrize("fleet", BAD, ids=short)
def test_bad_fleet_fails_only_the_check_in_its_name(fleet):
    assert failed(fleet()) == {check_of(fleet)}


@pytest.mark.contract("S5")
@pytest.mark.parametrize("fleet", GOOD, ids=short)
def test_good_fleet_passes_every_check(fleet):
    assert failed(fleet()) == set()


@pytest.mark.contract("S5")
@pytest.mark.parametrize("fleet", DRAINED, ids=short)
def test_drained_fleet_named_after_a_check_fails_it_only_if_judged_as_drained(fleet):
    checks = {fleet.__name__.split("_")[1].upper()} & set(CHECKS)
    assert failed(fleet()) == set()
    assert failed(fleet(), is_drained=True) == checks


@pytest.mark.contract("S5")
def test_every_check_has_a_bad_fleet():
    assert {check_of(fleet) for fleet in BAD} == set(CHECKS)


CAUSES = {
    "a lift after the end of the history": ENDS,
    "a hold that is later than the history": f"{ENDS}: operator:eve held orders later, "
    "as entry 5 of a proves",
    "a hold that the history lacks": LACKS,
    "a hold that is missing from topics read just now": LACKS,
    "a history of another cluster": "the holds topics are of the cluster west, and a was "
    "on east",
    "journals of two clusters": "a was on the cluster east and b on west: judge each "
    "cluster by itself",
    "records before those that the topic still has": "the topic's records before offset 5 "
    "are deleted",
    "records that no producer's journal lists": "no journal shows the written records: give "
    "producers' journals, or the topic (audit --against-topic)",
    "offsets that a poll omits": "offsets 20 to 26 had no record, in a topic "
    "that is not compacted and of which no transaction was read: audit --against-topic "
    "tells",
    "offsets that the topic has deleted since": "offsets 20 to 26 had no record, in a "
    "topic that is not compacted and of which no transaction was read: the topic has "
    "deleted them since",
    "three successive owners, the second of which has no journal": "the journal of b is "
    "missing: entry 2 of c begins where it committed",
}


@pytest.mark.contract("S5")
@pytest.mark.parametrize(("name", "cause"), CAUSES.items(), ids=CAUSES)
def test_unjudged_check_names_its_cause(name, cause):
    (fleet,) = (one for one in CASES if one.__name__ == name)
    assert set(unjudged(fleet(), **fleet.settings).values()) == {cause}


@pytest.mark.parametrize(
    "name",
    [
        "offsets without records in any other topic",
        "offsets that the topic has deleted since",
        "two members without a group, one of which skips offsets",
    ],
)
def test_audit_counts_offsets_without_a_record(name):
    (fleet,) = (one for one in CASES if one.__name__ == name)
    (result,) = judged(fleet(), **fleet.settings)
    assert result.unrecorded == 7


PAGE = (ROOT / "docs" / "how-to" / "audit.md").read_text()


def test_each_check_has_exactly_one_rule():
    assert tuple(one.check for one in RULES) == CHECKS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.check)
def test_module_of_a_rule_and_its_docstring_begin_with_the_rules_id(rule):
    module = getattr(rules, rule.check.lower())
    assert module.RULE is rule
    assert module.__doc__.strip().startswith(f"{rule.check}: ")


def test_audit_page_has_a_section_for_each_rule():
    _, _, text = PAGE.partition("## The rules\n")
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(CHECKS)
