"""Makes views of one group, with its members, their reports and its holds."""

from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group.commits import Move
from safeconsumer.group.facts import GroupFacts, HoldRecord, MemberFacts
from safeconsumer.group.report_wire import KeptHold, Report
from safeconsumer.group.view import View
from safeconsumer.group.wire import ControlHold, ControlKey

ENDS = {"ops": 3}
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def facts(name, *assigned):
    """Return a member in the form in which Kafka's group description lists it."""
    return MemberFacts(
        member_id=f"{name}-1", client_id=name, host="", assigned=frozenset(assigned)
    )


def report(name, number=None, **changed):
    """Return a member's report that lists its partition as quiet."""
    owned = {} if number is None else {"t": ((number, number),)}
    made = Report(
        group="g",
        member=f"{name}-x",
        client_id=name,
        applied=ENDS,
        assigned=owned,
        quiet=owned,
        member_id=f"{name}-1",
        generation=7,
    )
    return evolve(made, **changed)


def stream(**changed):
    made = report("stream nightly", 0, member_id="", generation=-1, kind="stream")
    return evolve(made, **changed)


def hold(scope="@all", ttl_ms=None, **changed):
    made = HoldRecord(
        key=ControlKey("g", "alice", scope),
        hold=ControlHold("id", "r", ttl_ms),
        at=100.0,
        offset=2,
    )
    return evolve(made, **changed)


def viewed(*seen, state="Stable", **changed):
    """Return a view with these members, as Kafka lists them, and with these reports."""
    members = tuple(one for one in seen if isinstance(one, MemberFacts))
    made = View(
        group="g",
        facts=GroupFacts(state=state, members=members, committed={}),
        reports=tuple(one for one in seen if isinstance(one, Report)),
        ends=ENDS,
    )
    return evolve(made, **changed)


def held(*seen, scope="@all", state="Stable", **changed):
    return viewed(*seen, state=state, **{"holds": (hold(scope),), **changed})


def commits(view, *several):
    """Return a view in which the group has committed offsets for these partitions."""
    known = evolve(view.facts, committed=dict.fromkeys(several, 5))
    return evolve(view, facts=known)


A, B = facts("a", ZERO), facts("b", ONE)
TWO = {"t": ((0, 1),)}
BOTH = {"assigned": TWO, "quiet": TWO}
NOTHING = {"assigned": {}, "quiet": {}}
QUIET = {"t": ((0, 0),)}
LOUD = report("a", 0, quiet={})
REBALANCES = "PreparingRebalance"
PLAIN = (
    "does not report: a plain client, which obeys no hold, one whose settings turn "
    "reports off, or one whose last report is over a minute old"
)
LINE = "t held by operator:alice"
KEEPS = report(
    "a", 0, holds=1, kept=(KeptHold(owner="operator:alice", scope="t", line=LINE),)
)


def of_a(**reported):
    """Return a view of one member that owns one partition and has sent this report."""
    view = commits(viewed(A, report("a", 0, **{"quiet": {}, **reported})), ZERO)
    return evolve(view, lags={ZERO: 4})


def moved_by_silent(*seen):
    """Return a view in which member B sends no reports but keeps committing."""
    return viewed(A, B, report("a", 0), *seen, moves={ONE: Move(5, 9)})
