"""All cases of one client, one after the other, and what they say."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from safeconsumer.testing.cases.catalogue import Case
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import (
    AbsentError,
    DiffersError,
    LeakedError,
    NotReachedError,
    StarvedError,
)
from safeconsumer.testing.cases.process import ClientError, HangsError
from tests.harness.conformance.choices import choice_of
from tests.harness.conformance.clients import OURS, Client
from tests.harness.conformance.environments import launch_of, versions_of
from tests.harness.conformance.outcomes import Outcome, Verdict

Tell = Callable[[Outcome], object]

_TRIES = 3


@frozen(kw_only=True)
class Tried:
    """What one run says of one client."""

    client: str
    versions: dict[str, str]
    outcomes: tuple[Outcome, ...]


def run(
    broker: Any,  # noqa: ANN401 - one of several kinds
    client: Client,
    cases: Iterable[Case],
    log: Path,
    tell: Tell,
) -> Tried:
    outcomes = []
    versions = versions_of(client)
    with Lab(broker, launch_of(client), client.protocol, log) as lab:
        for one in cases:
            outcomes.append(tried(one, lab, client))
            tell(outcomes[-1])
    return Tried(client=client.name, versions=versions, outcomes=tuple(outcomes))


def tried(one: Case, lab: Lab, client: Client) -> Outcome:
    """
    Try one case, and close what it left open.

    Where its situation does not come about it is tried again, up to three times, and
    the outcome says so. Ours has one try: what it does not join is a fault of its own.
    """
    start = time.monotonic()
    tries = 1 if client.family in OURS else _TRIES
    found, missed = _judged(one, lab, client), []
    while found.verdict == Verdict.UNCLEAR and len(missed) + 1 < tries:
        missed.append(f"before: {found.seen}")
        found = _judged(one, lab, client)
    return evolve(
        found,
        seen="; ".join(filter(None, [found.seen, *missed])),
        seconds=time.monotonic() - start,
    )


def _judged(one: Case, lab: Lab, client: Client) -> Outcome:
    outcome = partial(Outcome, case=one.name, client=client.name)
    try:
        one.run(lab)
        return outcome(verdict=Verdict.PASSES)
    except AbsentError as error:
        return outcome(verdict=Verdict.ABSENT, seen=str(error))
    except LeakedError as error:
        chosen = choice_of(client, one) is not None
        verdict = Verdict.CHOSEN if chosen else Verdict.DIFFERS
        return outcome(verdict=verdict, seen=str(error))
    except (DiffersError, HangsError, ClientError) as error:
        starved = isinstance(error, StarvedError)
        return outcome(verdict=Verdict.DIFFERS, seen=str(error), starved=starved)
    except NotReachedError as error:
        return outcome(verdict=Verdict.UNCLEAR, seen=str(error))
    finally:
        lab.end_case()
