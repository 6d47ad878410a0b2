"""In virtual time, each client gets its known verdict in the reusable cases."""

import pytest

from safeconsumer.testing.cases import test_one_consumer
from tests.harness.testing.catalogue import CASES
from tests.harness.trying import (
    ENDS_WITH_THE_OWNERSHIP,
    NOT_ABOUT_PAUSING,
    OURS,
    Verdict,
    is_known,
    tried,
)
from tests.sim.cases import CasesLab
from tests.sim.playing import simulated

ASSIGNORS = ("range", "cooperative-sticky")
WITHOUT_GROUP = test_one_consumer.PART

SLOW = {"time-limit-at-any-point-in-a-poll"}


def common(is_in_every_run):
    return [] if is_in_every_run else pytest.mark.nightly


PLAYED = [
    pytest.param(
        case,
        assignor,
        id=f"{name}-{assignor}",
        # Outside the nightly run, a case with a group has one assignor, alternately.
        marks=common(
            name not in SLOW
            and (case.part == WITHOUT_GROUP or assignor == ASSIGNORS[row % 2])
        ),
    )
    for row, (name, case) in enumerate(CASES.items())
    for assignor in ASSIGNORS[: 1 if case.part == WITHOUT_GROUP else 2]
]
STRICT = [
    pytest.param(case, id=name, marks=common(name in ENDS_WITH_THE_OWNERSHIP))
    for name, case in CASES.items()
]
ABOUT_PAUSING = [
    pytest.param(case, id=name)
    for name, case in CASES.items()
    if name not in NOT_ABOUT_PAUSING
]
ENDLESS = {"a-join-outlasts-its-poll", "time-limit-at-any-point-in-a-poll"}
"""The cases in which kafka-python hangs or loops endlessly, and a world stops the test."""

# Outside the nightly run, only cases run that fail in ways that no other test covers,
# because a verdict changes only with kafka-python's version or with the test kit.
STOCK_COMMON = {
    "evicted-for-not-polling",
    "log-truncated-while-no-member-reads",
    "pause-and-resume-around-fetches",
    "seek-while-paused",
    "consumer-starts-paused",
    "pausing-the-rest-while-another-owner-pauses-a-partition",
    "paused-topic-gains-partitions",
}
STOCK_PLAYED = [
    pytest.param(case, id=name, marks=common(name in STOCK_COMMON))
    for name, case in CASES.items()
    if name not in ENDLESS
]


@pytest.mark.contract("P1", "P4", "P5", "P6", "P7", "P8", "P9", "P11", "G7")
@pytest.mark.parametrize(("case", "assignor"), PLAYED)
@simulated(seeds=1, nightly=20)
def test_safe_consumer_passes_the_case(lab, case, assignor):
    outcome = tried(case, CasesLab(lab, assignor), OURS)
    assert is_known(outcome), outcome


@pytest.mark.contract("P3", "P5", "P6")
@pytest.mark.parametrize("case", STRICT)
@pytest.mark.parametrize("assignor", ASSIGNORS)
@simulated(seeds=1, nightly=20)
def test_consumer_with_strict_pauses_passes_the_case(lab, case, assignor):
    """Every run has the cases in which plain pauses end with the ownership."""
    cases = CasesLab(lab, assignor, "Strict")
    case.run(cases)
    cases.end_case()


@pytest.mark.parametrize("case", STOCK_PLAYED)
def test_kafka_python_gets_the_same_verdict_as_on_a_kafka_broker(lab, case):
    """kafka-python leaks, starves and raises in the same cases as on Kafka."""
    outcome = tried(case, CasesLab(lab, "range", "Stock"), "stock")
    assert is_known(outcome), outcome


@pytest.mark.nightly
@pytest.mark.parametrize("case", ABOUT_PAUSING)
def test_client_whose_pause_does_nothing_fails_the_case(lab, case):
    """Each case can fail, and fails for the reason that it tests."""
    cases = CasesLab(lab, "range", "Ours", "tests.sim.cases:Deaf")
    outcome = tried(case, cases, "deaf")
    assert outcome.verdict in {Verdict.LEAKS, Verdict.DIFFERS}, outcome.seen
