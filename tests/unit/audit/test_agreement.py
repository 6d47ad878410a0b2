"""Both judges agree: the one over tracks, and the one over facts."""

from pathlib import Path

import pytest
from attrs import evolve

from safeconsumer.audit.checker import Checker
from safeconsumer.audit.judge import Judge
from safeconsumer.audit.results import Settings
from tests.harness.audit.answering import answered
from tests.harness.audit.bad import BAD, DRAINED, GOOD, fleets_in
from tests.harness.audit.telling import control_in
from tests.harness.listing import short

HERE = Path(__file__).parent
TABLES = [
    *((make, Settings()) for make in (*BAD, *GOOD, *DRAINED)),
    *((make, Settings(is_drained=True)) for make in DRAINED),
    *((make, Settings()) for make in fleets_in(HERE / "verdicts.txt")),
    *(
        (make, Settings(clock_skew=1.0))
        for make in fleets_in(HERE / "clocks.txt", HISTORY="operator: held 2000 2900")
    ),
    *(
        (make, Settings())
        for make in fleets_in(
            HERE / "excuses.txt",
            PLAIN="pause orders:0 lifetime=plain",
            WHOLE_ENDED='e lift scope=orders owner="app\\u0020(all)"',
            WHOLE='e hold scope=orders owner="app\\u0020(all)"',
        )
    ),
]


def judged(judge, fleet):
    for one in fleet:
        judge.read(one.journal())
    return {
        case: (
            [(one.check, one.member, one.offset, one.evidence, one.at) for one in result.every],
            dict(sorted(result.unjudged.items())),
            {name: str(basis) for name, basis in result.bases.items()},
            result.unrecorded,
        )
        for case, result in judge.results().items()
    }


@pytest.mark.parametrize(("make", "settings"), TABLES, ids=short)
def test_both_judges_have_the_same_findings(make, settings):
    fleet = make()
    settings = evolve(settings, control=control_in(fleet))
    fleet = answered(fleet)
    expected = judged(Checker(settings), fleet)
    found = judged(Judge(settings), fleet)
    for one in (expected, found):
        for case, (findings, *rest) in one.items():
            one[case] = (sorted(findings, key=str), *rest)
    assert found == expected
