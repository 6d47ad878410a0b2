"""A trace shows what the judge judged by: on random journals, moment by moment."""

import json

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.audit.findings import Address
from safeconsumer.audit.perfetto import Collector
from safeconsumer.audit.results import Settings
from tests.harness.audit.journals import (
    MemberJournal,
    Operator,
    check,
    control_in,
    parsed,
)
from tests.harness.chance import by_day

TP, OTHER = "orders:0", "orders:1"
OWNERS = ("app", "eve")
SCOPES = (TP, "orders", "re:ord.*", "@all", OTHER)
LIFETIMES = (None, "until_resumed", "while_assigned")

# A probe's delivery comes so long after an entry; entries are a tenth apart, and skews
# and earlier moments are none that it could hit.
LATER = 0.04


EVENTS = (
    *("assigned", "assigned", "revoked", "lost", "pause", "pause", "until"),
    *("resume", "hold", "hold", "lift", "expired", "ended"),
)
REASONS = {"lift": None, "expired": "expired", "ended": "ended"}
PLANS = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.sampled_from(SCOPES),
        st.sampled_from(OWNERS),
        st.sampled_from(LIFETIMES),
        st.integers(0, 12),
        st.integers(0, 6),  # tenths of a second to wait before
    ),
    min_size=1,
    max_size=9,
)
OPERATORS = st.lists(
    st.tuples(
        st.sampled_from(SCOPES),
        st.sampled_from(OWNERS),
        st.integers(0, 60),
        st.integers(1, 60),
    ),
    max_size=4,
)


def written(name, plan):
    """Return a journal of a plan; generations go up, and only a placed hold ends."""
    member, placed = MemberJournal(name, at=1000), []
    generation, departed_at = 0, member.at
    for event, scope, owner, lifetime, number, wait in plan:
        member.at = round(member.at + wait / 10, 3)
        if event in {"pause", "until", "hold"}:
            owner = f"operator:{owner}" if event == "hold" else owner  # noqa: PLW2901
            placed.append((scope, owner))
        elif event not in {"assigned", "revoked", "lost"} and placed:
            scope, owner = placed[number % len(placed)]  # noqa: PLW2901
        later, since = (
            round(member.at + tenths / 10, 3) for tenths in (number, -number)
        )
        hold, call = (
            {"scope": scope, "owner": owner},
            {"scopes": [scope], "owner": owner},
        )
        match event:
            case "assigned":
                generation += 1 + number % 2
                member.assigned(TP, generation=generation)
            case "revoked" | "lost":
                member.then(event, partitions=[TP], generation=generation)
                departed_at = member.at
            case "pause" | "until":
                more = {"lifetime": lifetime} if event == "pause" else {"until": later}
                member.call("pause", **more, **call)
            case "resume":
                member.call("resume", **call)
            case "hold":
                member.then("hold", **hold)
            case _:
                since = departed_at if event == "ended" else since
                member.then("lift", since=since, why=REASONS[event], **hold)
    return member


def probed(member_journal, after):
    """Return the journal with a poll after an entry: when it delivers, and its entry."""
    lines = [json.loads(line) for line in member_journal.lines]
    at = lines[after]["at"] + LATER
    run = {
        "tp": TP,
        "from": 0,
        "next": 1,
        "first": 0,
        "last": 0,
        "count": 1,
        "written": at,
    }
    probe = {"at": at, "e": "deliver", "after": after, "asked": at - 0.01, **run}
    entries = [*lines[1 : after + 1], probe, *lines[after + 1 :]]
    for n, entry in enumerate(entries, start=1):
        entry["n"] = n
    text = "".join(f"{json.dumps(one)}\n" for one in [lines[0], *entries])
    return parsed("probed", text), at, after + 1


def lane_of(journals, assumed):
    collector = Collector(assumed)
    for journal in journals:
        collector.read(journal)
    lanes = {one.case: one for one in collector.lanes()}
    return lanes.get(Address("g", "orders", 0))


def has(spans, member, at):
    return any(one.member == member and one.start <= at < one.end for one in spans)


def every_probe(compare, fleet, operator, assumed):
    assumed = evolve(assumed, control=control_in([operator]))
    plain = [one.journal() for one in fleet]
    lane = lane_of(plain, assumed)
    for number, one in enumerate(fleet):
        for after in range(1, len(one.lines)):
            journal, at, entry = probed(one, after)
            others = [*plain[:number], *plain[number + 1 :]]
            member = journal.member
            drawn = lane is not None and has(lane.held, member, at)
            if lane is None or not has(lane.owned, member, at):
                # Whoever delivers there does so without owning it, which is A3.
                assert not drawn
                continue
            verdicts = check([journal, *others], assumed)
            found = [
                finding
                for verdict in verdicts.values()
                for finding in verdict.findings
                if finding.member == member and finding.check in {"A1", "G2"}
            ]
            assert all(one.entry in {entry, None} for one in found)
            compare(drawn, bool(found), f"after entry {after} of {member}")


@by_day(40)
@given(first=PLANS, second=PLANS, operator=OPERATORS, skew=st.sampled_from([0, 0.25]))
def test_a_trace_draws_a_hold_exactly_where_a_delivery_would_be_a_violation(
    first, second, operator, skew
):
    """A poll is put after each entry of random journals, and judged."""

    def compare(drawn, judged, where):
        assert drawn == judged, where

    begin = "assigned", TP, "", None, 0, 0
    fleet = [written("a", [begin, *first]), written("b", second)]
    holding = Operator()
    for scope, owner, start, length in operator:
        holding.held(1000 + start / 10, 1000 + (start + length) / 10, scope, owner)
    assumed = Settings(clock_skew=skew, patience=1.0)
    every_probe(compare, fleet, holding, assumed)


def test_the_probes_find_holds_and_their_absence():
    """The property test would also pass if no hold were ever drawn."""
    seen = set()
    fleet = [MemberJournal("a", at=1000).assigned(TP).pause("orders").resume("orders")]
    every_probe(
        lambda drawn, judged, _: seen.add((drawn, judged)),
        fleet,
        Operator(),
        Settings(),
    )
    assert seen == {(True, True), (False, False)}
