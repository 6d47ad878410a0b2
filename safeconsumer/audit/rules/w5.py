"""
W5: every record is handled to completion, once in each ownership.

No handler starts on a record that is complete or was never delivered. If all records
should be complete by now (``--drained``), a handler has completed each of them; for a
member without a worker, delivered records count as completed. If a worker dropped
records because its program called ``seek`` past them, the members that get these
records later have to handle them.
"""

from collections.abc import Iterable, Iterator

from safeconsumer.audit.case import Case, Epoch
from safeconsumer.audit.facts import HandlerBegan
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.rules.a2 import deleted, gone_before, of_offsets, skipped
from safeconsumer.audit.rules.rule import Broken, Rule, Unjudged
from safeconsumer.audit.spans import Span, merged, uncovered


def _began(fact: HandlerBegan) -> Iterator[Broken]:
    for offset in fact.unknown:
        yield offset, f"began {offset}, which is complete or was not delivered"


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    if not (case.settings.is_drained and case.is_working) or case.incomparable:
        return
    kept = case.acknowledged.kept
    spans = [span for one in case.parts.values() for span in one.done]
    plain = [one for one in case.epochs if not case.parts[one.member].is_working]
    workers = [one for one in case.epochs if case.parts[one.member].is_working]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.records)])
    givers = [one for one in workers if one.given_up]
    stay = merged(span for one in workers for span in _still_to_handle(one, givers))
    skips = [
        *skipped([*plain, *workers], kept),
        *gone_before(case, [*plain, *workers]),
        *(span for one in givers for span in one.given_up),
    ]
    written = uncovered(merged(case.acknowledged.written), merged(skips))
    came = uncovered(stay, deleted(workers, kept))
    for start, end in uncovered(merged([*written, *came]), covered):
        evidence = f"no handler completed offsets {start} to {end - 1}"
        yield of_offsets("W5", start, evidence)


def _still_to_handle(epoch: Epoch, givers: Iterable[Epoch]) -> Iterable[Span]:
    since = [span for one in givers if one.is_since(epoch) for span in one.given_up]
    return uncovered(merged(epoch.records), merged(since)) if since else epoch.records


RULE = Rule(check="W5", of={HandlerBegan: _began}, across=_across)
