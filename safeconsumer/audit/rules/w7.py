"""
W7: records of a lane are handled one at a time, in the order of offsets.

Records that a handler gets together, as a batch or in another process, are one step of
their lane: they may be delivered again in smaller steps, but before any later record.
"""

from collections.abc import Iterator

from safeconsumer.audit.facts import HandlerBegan
from safeconsumer.audit.rules.rule import Broken, Rule


def _began(fact: HandlerBegan) -> Iterator[Broken]:
    first, last = fact.offset, fact.last
    for other in fact.busy:
        yield first, f"began {first} while {other} of its lane was handled"
    if fact.after is not None:
        yield first, f"began {first} after {fact.after} of its lane"
    if fact.over is not None:
        yield last, f"began {last} before {fact.over} of its lane was complete"


RULE = Rule(check="W7", of={HandlerBegan: _began})
