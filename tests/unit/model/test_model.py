"""
Random histories of one consumer, judged at every step; and that faults are found.

The real consumer, subscription, fetcher and coordinator's hooks run over a client
without network, threads or time (``network.py``). What must be is worked out beside it
(``truth.py``). ``--model-examples=N`` runs N histories, ``--hypothesis-profile=random``
other ones each time.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from kafka.future import Future

from tests.harness.chance import FIXED, is_repeatable
from tests.unit.model.machine import Model
from tests.unit.model.mutants import PLANTED
from tests.unit.model.subject import StockSubject
from tests.unit.model.truth import Violation

# They only compute, and take long on a machine that does much else.
pytestmark = pytest.mark.timeout(600)

HISTORIES, STEPS = 150, 40
MUTANT_HISTORIES, MUTANT_STEPS = 300, 30

# What a run of the default size must have met, or it proves little. The cap on parked
# data and an expiry in the middle of a call are met by longer runs only.
WORTH_SEEING = {
    "a gained partition was gated",
    "a pause in flight",
    "a pause in mid batch",
    "a pause in mid iteration",
    "a pause was refused",
    "a poll raised",
    "a position out of range",
    "a resume in flight",
    "a resume of parked data",
    "a resume that left another hold",
    "a seek over buffered data",
    "a stale answer after regain at the same offset",
    "an answer for what was paused in flight",
    "an error for what is paused",
    "fetches_purged",
    "hold_bit_on_assignment",
    "hold_ended",
    "hold_expired",
    "interrupted at append",
    "interrupted at drained",
    "interrupted at parse",
    "interrupted at wait",
    "lost and regained while parked",
    "parked data came with the next poll",
    "records delivered",
    "the listener acted",
    "the topic's hold met a new partition",
}


@pytest.fixture(autouse=True)
def _strict_and_silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let errors in upstream's callbacks surface, and its log lines not."""
    monkeypatch.setattr(Future, "error_on_callbacks", True)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(level)


@pytest.fixture
def chance() -> dict[str, Any]:
    """Return the settings of Hypothesis that all runs share."""
    return {
        "report_multiple_bugs": False,
        "suppress_health_check": list(HealthCheck),
    }


def _machine(subject: type) -> type[Model]:
    return type(
        f"{subject.__name__}Model",
        (Model,),
        {"subject": subject, "sights": Counter(), "steps": Counter()},
    )


def test_every_history_keeps_what_is_promised(
    chance: dict[str, Any], pytestconfig: pytest.Config
) -> None:
    """A1 to A8, P7 to P11, L1 and L2, whatever happens in whatever order."""
    asked = pytestconfig.getoption("--model-examples", default=None)
    machine = _machine(Model.subject)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=asked or HISTORIES, stateful_step_count=STEPS, **chance
        ),
    )
    print(dict(machine.steps), dict(sorted(machine.sights.items())))  # noqa: T201 - pytest -s shows it
    if is_repeatable() and (not asked or asked >= HISTORIES):
        assert WORTH_SEEING - set(machine.sights) == set()


def _fault_of(subject: type, chance: dict[str, Any]) -> str | None:
    # Found is enough: no shrinking; and found with these seeds, in random runs, too.
    chance = {**chance, **FIXED, "phases": [Phase.generate]}
    try:
        run_state_machine_as_test(
            _machine(subject),
            settings=settings(
                max_examples=MUTANT_HISTORIES,
                stateful_step_count=MUTANT_STEPS,
                **chance,
            ),
        )
    except Violation as violation:
        return violation.number
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("subject", PLANTED)
def test_a_planted_fault_is_found(subject: type, chance: dict[str, Any]) -> None:
    """The same machine, with a consumer that has one fault."""
    assert _fault_of(subject, chance) is not None


def test_upstreams_own_consumer_is_found_wanting(chance: dict[str, Any]) -> None:
    """A pause forgotten (A1), or a resume that never resumes (L1, L2)."""
    assert _fault_of(StockSubject, chance) in {"A1", "L1", "L2"}
