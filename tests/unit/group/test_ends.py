"""An operator's wrong clock does not hide, shorten or replace a hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.group.history import entries, history_of
from safeconsumer.group.plan import Consent, Extend, place_action, plan_of
from safeconsumer.group.scopes import scopes_of
from tests.harness.group.board import Topics

HOUR = 3600.0
OFFSETS = st.floats(-3 * HOUR, 3 * HOUR).filter(lambda one: abs(one) >= 60)
# The duration of a hold in seconds, and the fraction of it that has passed at the view.
LASTING = st.floats(60, 4 * HOUR)
PART = st.floats(0.01, 0.99)


def held(ahead, seconds, after, *, is_reported, skew=0.0):
    """Hold a group, and view it this many seconds later with a wrong clock."""
    topics = Topics(ahead, skew)
    topics.report("a", state="stopped")
    topics.hold("t", ttl_ms=int(seconds * 1000))
    topics.at += after
    if is_reported:
        topics.report("a")
        topics.view()
        topics.at += 3
        topics.report("a")
    return topics


def placed_again(seen, for_, reason="x"):
    action = place_action(
        group="g", owner="alice", texts=["t"], reason=reason, for_=for_
    )
    # This test ignores scopes that cover no partition.
    return plan_of(seen, action, Nothing)


class Nothing:
    """A cluster without known groups or topics."""

    groups = topics = staticmethod(lambda: ())


def longer(seen, seconds):
    action = Extend(
        group="g", owner="alice", scopes=scopes_of(["t"], "g"), seconds=seconds
    )
    return plan_of(seen, action, Nothing)


@pytest.mark.contract("G8")
@given(ahead=OFFSETS, lasting=LASTING, part=PART, is_reported=st.booleans())
def test_wrong_clock_does_not_hide_a_hold_that_members_obey(
    ahead, lasting, part, *, is_reported
):
    topics = held(ahead, lasting + 10, part * lasting, is_reported=is_reported)
    seen = topics.view()
    assert [one.key.scope for one in seen.holds] == ["t"]
    assert seen.verdict.words not in {"nothing held", "hold ended"}
    past = history_of(topics.board.records, "g")
    (one,) = entries(past, topics.board.skew, seen.times.proven, seen.times.here)
    assert one.verb != "expired"


@pytest.mark.contract("G8")
@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
@pytest.mark.parametrize("asked", [1.5 * HOUR, 2.5 * HOUR, 3.5 * HOUR])
def test_extension_never_shortens_a_hold_timestamped_by_its_operators_host(
    ahead, asked, is_reported
):
    topics = Topics(ahead)
    topics.by_hosts.add("ops")
    topics.hold("t", ttl_ms=int(2 * HOUR * 1000))
    if is_reported:
        topics.report("a")
        topics.view(listen=lambda: topics.at)
    seen = topics.view()
    (before,) = seen.holds
    plan = longer(seen, asked)
    is_shorter = seen.times.wall + asked < before.expires_at
    assert plan.is_refused is (is_shorter or not seen.lasting or bool(seen.maybe_ended))
    for change in plan.changes:
        end = seen.times.wall + change.hold.ttl_ms / 1000
        assert end == max(before.expires_at, seen.times.wall + asked)


@pytest.mark.contract("G8")
@given(
    ahead=OFFSETS,
    lasting=LASTING,
    part=PART,
    asked=st.floats(60, 4 * HOUR),
    is_reported=st.booleans(),
)
def test_wrong_clock_does_not_shorten_a_hold_that_members_obey(
    ahead, lasting, part, asked, *, is_reported
):
    """An extension counts from the broker's timestamp of its record."""
    topics = held(ahead, lasting + 10, part * lasting, is_reported=is_reported)
    seen = topics.view()
    (before,) = seen.holds
    plan = longer(seen, asked)
    for need in plan.needs:
        assert "which is later" in need.why or "may have ended at" in need.why
    if plan.needs:
        return
    (change,) = plan.changes
    assert before.expires_at is not None
    assert change.hold is not None
    assert change.hold.ttl_ms is not None
    assert topics.at + change.hold.ttl_ms / 1000 >= before.expires_at - 0.001


@pytest.mark.contract("G8")
@given(ahead=OFFSETS, lasting=LASTING, part=PART, is_reported=st.booleans())
def test_wrong_clock_does_not_waive_the_consent_for_replacing_a_hold(
    ahead, lasting, part, *, is_reported
):
    """Replacing a hold requires the owner's consent."""
    topics = held(ahead, lasting + 10, part * lasting, is_reported=is_reported)
    seen = topics.view()
    (before,) = seen.holds
    other = placed_again(seen, "1s", "another")
    assert other.replaced == (before,)
    assert Consent.REPLACE in [one.consent for one in other.needs]


@pytest.mark.parametrize(
    ("ahead", "after", "is_reported", "message"),
    [
        pytest.param(0.0, 1790, False, "", id="ended by neither clock"),
        pytest.param(
            HOUR, 60, False, "t may have ended at ", id="ended by the local clock only"
        ),
        pytest.param(0.0, 1810, True, "t ended at ", id="ended, as a report proves"),
    ],
)
def test_extend_refuses_a_hold_that_has_or_may_have_ended(
    ahead, after, message, *, is_reported
):
    seen = held(ahead, 1800, after, is_reported=is_reported, skew=30.0).view()
    assert len(seen.holds) == 1
    needs = longer(seen, HOUR).needs
    assert all(one.why.startswith(message) for one in needs)
    assert all(("members lift it until" in one.why) is is_reported for one in needs)
    assert [one.ask for one in needs] == ["pause places it again"] * bool(message)
