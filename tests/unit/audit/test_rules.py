"""A rule is one module, and one section of the page."""

import re

import pytest

from safeconsumer.audit import rules
from safeconsumer.audit.results import CHECKS
from safeconsumer.audit.rules import RULES
from tests.harness.docs.pages import ROOT

PAGE = (ROOT / "docs" / "how-to" / "audit.md").read_text()


def test_there_is_a_rule_for_each_check():
    assert tuple(one.check for one in RULES) == CHECKS


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.check)
def test_a_rule_has_a_module_of_its_name_that_begins_with_it(rule):
    module = getattr(rules, rule.check.lower())
    assert module.RULE is rule
    assert module.__doc__.strip().startswith(f"{rule.check}: ")


def test_each_rule_is_a_section_of_the_page():
    _, _, text = PAGE.partition("## The rules\n")
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(CHECKS)
