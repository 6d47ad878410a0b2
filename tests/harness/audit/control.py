"""What control topics say, as a member of a fleet of journals that are written by hand."""

import math

from safeconsumer.audit.control import Control, Span
from tests.harness.audit.telling import Telling


class Operator(Telling):
    """Holds the group g; its journal is empty, since operators keep none."""

    def __init__(self):
        super().__init__("operator", group="")
        self.spans = []

    def held(
        self, start, end=math.inf, scope="orders", owner="alice", source="operator"
    ):
        """Hold a scope from one time to another, by the broker's clock."""
        span = Span(
            source=source, group="g", owner=owner, scope=scope, start=start, end=end
        )
        self.spans.append(span)
        return self


def control_in(fleet):
    """Return what the operators of a fleet did; None if it has none."""
    operators = [one for one in fleet if isinstance(one, Operator)]
    if not operators:
        return None
    return Control(spans=tuple(span for one in operators for span in one.spans))
