"""Commands and the follower while one broker of several does not answer."""

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import GroupAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from safeconsumer.group.follower import OLD_AFTER, Follower
from safeconsumer.group.survey import AWAY
from safeconsumer.testing import _codes
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.playing import simulated

_GROUPS = {"here": 1, "there": 2, "away": 3}
_DOWN = 3


def groups(lab):
    """Create three groups with commits, each with a different coordinator."""
    operator = Operator(lab)
    (tp,) = lab.topic("t", records=5)
    for name in ("ops", "status", "t"):
        lab.cluster.lead(name, 0, 1)
    for group, node in _GROUPS.items():
        lab.cluster.move_coordinator(group, node)
        consumer = KafkaConsumer(**lab.settings(group_id=group))
        consumer.commit({tp: OffsetAndMetadata(2, "", -1)})
        consumer.close()
        operator.hold(group=group)
    return operator


def lose(lab, *, is_frozen):
    """Stop or freeze a broker; no other broker takes over."""
    if is_frozen:
        lab.cluster.freeze(_DOWN)
    else:
        lab.cluster.down(_DOWN, failover=None)


def by_name(looking):
    """Return all known groups, by name."""
    return {one.group: one for one in looking.survey()[0]}


def known(found):
    """Return the groups whose members and offsets are known; the survey names all groups."""
    assert found.keys() == _GROUPS.keys()
    return {
        name
        for name, one in found.items()
        if one.facts.has_committed and one.facts.state == "Empty"
    }


in_both = pytest.mark.parametrize("is_frozen", [True, False])


@in_both
@simulated(seeds=1, nightly=3, nodes=3)
def test_survey_without_one_coordinator_shows_the_other_groups(lab, *, is_frozen):
    """The missing groups are known again once another broker coordinates them."""
    operator = groups(lab)
    with operator.looking() as looking:
        lose(lab, is_frozen=is_frozen)
        for _ in range(3):
            found = by_name(looking)
            assert known(found) == {"here", "there"}
            (whose, why) = found["away"].unread
            assert whose.startswith("the groups of broker 3 are not known: ")
            assert why.startswith("neither members nor offsets of away can be read: ")
            assert found["here"].unread == (whose,)
        lab.cluster.move_coordinator("away", 2)
        looking.survey()
        found = by_name(looking)
        assert known(found) == _GROUPS.keys()


@pytest.mark.contract("G8")
@simulated(seeds=1, nodes=3)
def test_missing_broker_is_named_even_if_no_group_is_known(lab):
    """The output does not say "there are no groups", as if all brokers had answered."""
    operator = Operator(lab)
    for name in ("ops", "status"):
        lab.cluster.lead(name, 0, 1)
    with operator.looking() as looking:
        lab.cluster.down(_DOWN, failover=None)
        found, readable = looking.survey()
    assert found == ()
    (why,) = readable.unread
    assert why.startswith("the groups of broker 3 are not known: ")


@in_both
@simulated(seeds=1, nightly=3, nodes=3)
def test_follower_that_lacks_one_coordinator_stays_current_on_other_groups(
    lab, *, is_frozen
):
    groups(lab)
    with Follower(lab.connection, CONTROL) as follower:
        lab.until(lambda: known_all(follower.snapshot()))
        lose(lab, is_frozen=is_frozen)
        lab.until(lambda: "away" not in known(follower.snapshot().views), 30)
        ages = []
        for _ in range(30):
            lab.sleep(1)
            seen = follower.snapshot()
            assert (seen.trouble, known(seen.views)) == (None, {"here", "there"})
            ages.append(seen.age)
        assert max(ages) < OLD_AFTER
        (why,) = seen.unread
        assert why.startswith("the groups of broker 3 are not known: ")
        lab.cluster.move_coordinator("away", 2)
        lab.until(lambda: known_all(follower.snapshot()), 30)


def known_all(seen):
    """Return whether all three groups are known completely."""
    return seen.is_complete and known(seen.views) == _GROUPS.keys()


@in_both
@simulated(seeds=3, nightly=8, nodes=3)
def test_request_to_any_broker_goes_to_a_live_one(lab, *, is_frozen):
    """The request finds a live broker even before the dead broker is fenced."""
    operator = groups(lab)
    lose(lab, is_frozen=is_frozen)
    began = lab.now
    with operator.looking() as looking:
        seen = looking.look("here")
        assert (seen.facts.state, len(seen.holds)) == ("Empty", 1)
        assert looking.groups()
        assert looking.topics()
    assert lab.now - began < 15.0


@pytest.mark.parametrize("seconds", [1, 9])
@simulated(seeds=2, nightly=8, nodes=3)
def test_view_of_one_group_waits_for_its_next_coordinator(lab, *, seconds):
    """Kafka notices nine seconds after the last heartbeat that a broker is dead."""
    operator = groups(lab)
    with operator.looking() as looking:
        looking.look("away")
        lab.cluster.down(_DOWN, failover=seconds)
        for _ in range(3):
            seen = looking.look("away")
            assert (seen.facts.state, seen.facts.has_committed) == ("Empty", True)


@simulated(seeds=1, nightly=3, nodes=3)
def test_view_of_a_group_without_any_coordinator_raises_in_time(lab):
    operator = groups(lab)
    lose(lab, is_frozen=False)
    began = lab.now
    with operator.looking() as looking:
        with pytest.raises(AWAY):
            looking.look("away")
        assert 10.0 < lab.now - began < 20.0
        began = lab.now
        with pytest.raises(AWAY):
            looking.look("away", timeout=4.0)
        assert 3.0 < lab.now - began <= 4.0


@in_both
@simulated(seeds=1, nightly=3, nodes=3)
def test_lags_leave_out_partitions_without_a_leader(lab, *, is_frozen):
    operator = groups(lab)
    there, away = lab.topic("u", 2, records=9)
    several = (there, away, *lab.topic("gone"))
    for tp in several:
        lab.cluster.lead(tp.topic, tp.partition, _DOWN if tp == away else 1)
    consumer = KafkaConsumer(**lab.settings(group_id="here"))
    consumer.commit(dict.fromkeys(several, OffsetAndMetadata(5, "", -1)))
    consumer.close()
    lab.cluster.delete_topic("gone")
    lose(lab, is_frozen=is_frozen)
    with operator.looking() as looking:
        lags = {TopicPartition("t", 0): 3, there: 4}
        assert looking.look("here").lags == lags
        assert by_name(looking)["here"].lags == lags


@simulated(seeds=1, nightly=3, nodes=3)
def test_refusals_raise_and_requests_to_unready_coordinators_are_repeated(lab):
    operator = groups(lab)
    refused = _codes.error_code("GROUP_AUTHORIZATION_FAILED")
    with operator.looking() as looking:
        for api, code in (
            ("DescribeGroups", 14),
            ("OffsetFetch", _codes.NOT_COORDINATOR),
        ):
            lab.cluster.fail(api, error=code, count=1)
            assert looking.group("here").state == "Empty"
        for api, ask in (
            ("DescribeGroups", lambda: looking.group("here")),
            ("ListGroups", looking.groups),
        ):
            fault = lab.cluster.fail(api, error=refused)
            with pytest.raises(GroupAuthorizationFailedError):
                ask()
            fault.end()


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
@simulated(seeds=1, nightly=3, nodes=3)
def test_request_that_fails_for_all_groups_of_a_coordinator_is_sent_once(
    lab, *, api, error
):
    """The request is not repeated for each half of the groups, down to single groups."""
    operator = groups(lab)
    for number in range(8):
        operator.hold(group=f"g{number}")
        lab.cluster.move_coordinator(f"g{number}", 1)
    with operator.looking() as looking:
        fault = lab.cluster.fail(api, error=_codes.error_code(error))
        looking.survey()  # the view forgets known coordinators
        begun = len(lab.kinds())
        found, _ = looking.survey()
        assert all(one.unread for one in found)
        assert lab.kinds(begun).count(api) <= len({1, 2, 3})
        fault.end()
        looking.survey()
        assert not any(one.unread for one in looking.survey()[0])
