"""Makes a ledger with the state of its control topics, and records of the holds topic."""

from safeconsumer.group import wire
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.state import ControlState
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.holds.lab import LedgerLab

HOLDS = "holds"
SKEW = 5.0


def control_record(  # noqa: PLR0913 - a record has many properties
    scope,
    offset,
    *,
    held=True,
    group="g",
    owner="alice",
    ttl=None,
    at=0.0,
    since=None,
    reason=None,
):
    """Return a record of the holds topic that places or lifts one hold."""
    ttl_ms = None if ttl is None else int(ttl * 1000)
    since_ms = None if since is None else int(since * 1000)
    hold = ControlHold("id", reason, ttl_ms, since_ms=since_ms)
    value = wire.encode_hold(hold) if held else None
    key = wire.encode_key(ControlKey(group, owner, scope))
    return RawRecord(key, value, offset, int(at * 1000))


class ControlLab(LedgerLab):
    """A ledger lab with the state of its control topics; its wall clock shows 1.0."""

    def __init__(self, clock=None):
        super().__init__()
        self.state = ControlState("g", self.ledger, SKEW, clock)

    def hear(self, *records):
        self.state.absorb(HOLDS, records)
        self.ledger.deliver()

    def held(self):
        return {(str(hold.scope), hold.owner) for hold in self.ledger.view().holds}
