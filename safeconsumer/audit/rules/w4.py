"""W4: no commit is beyond a record that is not complete."""

from collections.abc import Iterator

from safeconsumer.audit.facts import EarlyCommit
from safeconsumer.audit.rules.rule import Broken, Rule


def _open(fact: EarlyCommit) -> Iterator[Broken]:
    yield fact.first, f"committed {fact.offset}, {fact.first} is not complete"


RULE = Rule(check="W4", of={EarlyCommit: _open})
