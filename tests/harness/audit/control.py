"""What control topics say, as a member of a fleet of journals that are written by hand."""

import math
from collections.abc import Iterable

from safeconsumer.audit.control import Control, Span
from tests.harness.audit.telling import Telling


class Operator(Telling):
    """Holds the group g; its journal is empty, since operators keep none."""

    def __init__(self) -> None:
        super().__init__("operator", group="")
        self.spans: list[Span] = []

    def held(
        self,
        start: float,
        end: float = math.inf,
        scope: str = "orders",
        owner: str = "alice",
        source: str = "operator",
    ) -> "Operator":
        """Hold a scope from one time to another, by the broker's clock."""
        span = Span(
            source=source, group="g", owner=owner, scope=scope, start=start, end=end
        )
        self.spans.append(span)
        return self


def control_in(fleet: Iterable[Telling]) -> Control | None:
    """Return what the operators of a fleet did; None if it has none."""
    operators = [one for one in fleet if isinstance(one, Operator)]
    if not operators:
        return None
    return Control(spans=tuple(span for one in operators for span in one.spans))
