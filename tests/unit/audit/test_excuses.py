"""
The judge believes nothing that the library under judgement says of itself.

An entry of the library excuses a member only if what came from outside agrees: the
program's calls, the broker's answers, and the holds that operators wrote. The cases stand
in ``excuses.txt``: each names the checks that fail and, with a question mark, those that
are not judged.
"""

from pathlib import Path

import pytest

from tests.harness.audit.fleets import fleets_in
from tests.harness.audit.journals import outcome

CASES = fleets_in(
    Path(__file__).with_name("excuses.txt"),
    PLAIN="pause orders:0 lifetime=plain",
    WHOLE_ENDED='e lift scope=orders owner="app\\u0020(all)"',
    WHOLE='e hold scope=orders owner="app\\u0020(all)"',
)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_an_entry_of_the_library_excuses_only_what_others_confirm(make):
    assert outcome(make()) == make.does
