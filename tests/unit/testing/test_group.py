import pytest

from safeconsumer.testing import _codes
from safeconsumer.testing._group import Group, GroupState
from safeconsumer.testing._members import JoinRequest
from tests.harness.testing.asking import Clock

SESSION, REBALANCE = 10.0, 60.0


class CoordinatorLab:
    """A simulated group, and the responses that its members have received."""

    def __init__(self):
        self.clock = Clock()
        self.group = Group(self.clock.schedule)
        self.joins = {}
        self.syncs = {}
        self.ids = {}

    def join(self, name, **changes):
        fields = {
            "member_id": self.ids.get(name, ""),
            "client_id": name,
            "instance_id": None,
            "session_timeout": SESSION,
            "rebalance_timeout": REBALANCE,
            "protocols": {"range": b"topics"},
            "is_id_required": False,
        }
        self.group.join(
            JoinRequest(**{**fields, **changes}), lambda a: self._joined(name, a)
        )

    def sync(self, name, **assignments):
        by_id = {self.ids[member]: value for member, value in assignments.items()}
        self.group.sync(
            self.ids[name],
            self.group.generation,
            by_id,
            lambda *answer: self.syncs.setdefault(name, []).append(answer),
        )

    def beat(self, name):
        return self.group.heartbeat(self.ids[name], self.group.generation)

    def pass_while_living(self, *names):
        """Let a rebalance time out while these members send heartbeats; return the states."""
        states = set()
        for _ in range(7):
            states.add(self.group.state)
            for name in names:
                self.beat(name)
            self.clock.pass_(SESSION - 1)
        return states

    def leave(self, name):
        return self.group.leave(self.ids[name])

    def _joined(self, name, answer):
        self.joins.setdefault(name, []).append(answer)
        self.ids[name] = answer.member_id


@pytest.fixture
def lab():
    return CoordinatorLab()


@pytest.fixture
def two(lab):
    """Return a group in which members a (the leader) and b have joined, but not synced."""
    lab.join("a")
    lab.join("b")
    lab.join("a")
    return lab


@pytest.fixture
def stable(two):
    two.sync("a", a=b"A", b=b"B")
    two.sync("b")
    return two


def test_member_that_does_not_join_in_time_is_removed(stable):
    stable.join("c")
    stable.join("a")
    stable.pass_while_living("b")
    assert stable.group.members == (stable.ids["a"], stable.ids["c"])
    assert stable.beat("b") == _codes.UNKNOWN_MEMBER_ID


def test_leader_that_never_syncs_is_removed(two):
    two.sync("b")
    two.pass_while_living("a")
    assert two.group.members == (two.ids["b"],)
    assert two.syncs["b"] == [(_codes.REBALANCE_IN_PROGRESS, b"")]


def test_join_during_the_sync_starts_another_rebalance(two):
    two.sync("b")
    two.join("c")
    assert two.syncs["b"] == [(_codes.REBALANCE_IN_PROGRESS, b"")]
    assert two.group.state is GroupState.PREPARING


def test_unused_member_id_delays_a_rebalance_for_one_session_timeout(stable):
    stable.join("late", is_id_required=True)
    stable.join("c")
    stable.join("a")
    stable.join("b")
    assert stable.group.state is GroupState.PREPARING
    stable.clock.pass_(SESSION + 1)
    assert stable.group.state is GroupState.COMPLETING


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (GroupState.PREPARING, _codes.NONE),
        (GroupState.COMPLETING, _codes.REBALANCE_IN_PROGRESS),
        (GroupState.STABLE, _codes.NONE),
    ],
)
def test_commit_is_refused_only_before_the_assignment(stable, state, answer):
    if state is not GroupState.STABLE:
        stable.join("c")
    if state is GroupState.COMPLETING:
        stable.join("a")
        stable.join("b")
    assert stable.group.state is state
    assert stable.group.commit(stable.ids["a"], stable.group.generation) == answer


def test_commit_of_an_older_generation_is_refused(stable):
    group, member = stable.group, stable.ids["a"]
    assert group.commit(member, group.generation - 1) == _codes.ILLEGAL_GENERATION
    assert group.commit("nobody", group.generation) == _codes.UNKNOWN_MEMBER_ID


def test_protocol_that_most_members_prefer_is_chosen(lab):
    lab.join("a", protocols={"range": b"", "sticky": b""})
    lab.join("b", protocols={"sticky": b"", "range": b""})
    lab.join("c", protocols={"sticky": b"", "range": b"", "other": b""})
    lab.join("a", protocols={"range": b"", "sticky": b""})
    assert lab.joins["c"][-1].protocol == "sticky"


def test_member_without_a_common_protocol_is_refused(stable):
    stable.join("c", protocols={"sticky": b""})
    assert stable.joins["c"][-1].error == _codes.INCONSISTENT_GROUP_PROTOCOL


def test_second_member_with_a_static_id_fences_the_first(lab):
    lab.join("a", instance_id="one")
    old = lab.ids["a"]
    lab.sync("a", a=b"A")
    lab.join("b", instance_id="one")
    assert lab.joins["b"][-1].leader == old  # the new member does not assign partitions
    assert lab.joins["b"][-1].generation == 1
    lab.sync("b")
    assert lab.syncs["b"] == [(0, b"A")]
    lab.join("a", instance_id="one", member_id=old)
    assert lab.joins["a"][-1].error == _codes.FENCED_INSTANCE_ID
    assert lab.group.heartbeat(old, 1, "one") == _codes.FENCED_INSTANCE_ID
    assert lab.group.commit(old, 1, "one") == _codes.FENCED_INSTANCE_ID
    assert lab.group.leave(old, "one") == _codes.FENCED_INSTANCE_ID
    assert lab.group.heartbeat(lab.ids["b"], 1, "one") == _codes.NONE


def test_live_leader_that_does_not_join_is_replaced(lab):
    """The old leader is static, so it stays a member; another member assigns (KIP-345)."""
    lab.join("a", instance_id="a")
    lab.sync("a", a=b"A")
    lab.join("b")
    lab.pass_while_living("a")
    assert lab.joins["b"][-1].leader == lab.ids["b"]
    assert [id_ for id_, *_ in lab.joins["b"][-1].members] == list(lab.group.members)
    lab.sync("b", a=b"A", b=b"B")
    assert lab.syncs["b"] == [(_codes.NONE, b"B")]


def test_rebalance_without_joins_waits_for_static_members(lab):
    """A static member can still join, and is then in the next generation."""
    lab.join("a", instance_id="a")
    lab.sync("a", a=b"A")
    lab.join("b")
    lab.group.leave(lab.group.members[-1])
    lab.pass_while_living("a")
    assert (lab.group.state, lab.group.generation) == (GroupState.PREPARING, 1)
    lab.join("a", instance_id="a")
    assert lab.joins["a"][-1].generation == 2


def test_member_that_never_syncs_is_removed_from_a_stable_group(two):
    """Otherwise the member would keep its partitions, and no rebalance would start."""
    two.sync("a", a=b"A", b=b"B")
    assert two.pass_while_living("a", "b") == {GroupState.STABLE}
    assert two.group.members == (two.ids["a"],)
    assert two.group.state is GroupState.PREPARING


def test_static_member_must_send_sync_group_if_the_replaced_member_has_not(lab):
    """Otherwise the group would stay stable with a member that reads no partition."""
    lab.join("a")
    for name in ("b", "c"):
        lab.join(name, instance_id=name)
    lab.join("a")
    lab.sync("a", a=b"A", b=b"B", c=b"C")
    lab.join("returned", instance_id="b")
    lab.sync("c")
    assert lab.pass_while_living("a", "c", "returned") == {GroupState.STABLE}
    assert lab.group.state is GroupState.PREPARING


def test_member_that_prefers_another_protocol_starts_a_rebalance(lab):
    """The protocols are the same, but their order is the member's vote."""
    lab.join("a", protocols={"range": b"", "sticky": b""})
    lab.join("b", protocols={"range": b"", "sticky": b""})
    lab.join("a", protocols={"range": b"", "sticky": b""})
    lab.sync("a", a=b"A", b=b"B")
    assert lab.group.state is GroupState.STABLE
    lab.join("b", protocols={"sticky": b"", "range": b""})
    assert lab.group.state is GroupState.PREPARING


class TestCoordinatorMoves:
    def test_unfinished_rebalance_is_undone(self, stable):
        """Only assignments are stored, so the new member is unknown afterwards."""
        generation = stable.group.generation
        stable.join("c")
        stable.join("a")
        stable.group.unload()
        assert stable.joins["a"][-1].error == _codes.NOT_COORDINATOR
        stable.group.load()
        assert stable.group.state is GroupState.STABLE
        assert stable.group.generation == generation
        assert stable.group.members == (stable.ids["a"], stable.ids["b"])
        assert stable.beat("b") == _codes.NONE

    def test_number_of_a_generation_that_was_not_stored_is_used_again(self, two):
        """No member of the unstored generation received an assignment."""
        two.sync("a", a=b"A", b=b"B")
        two.sync("b")
        two.join("a")
        two.join("b")
        unwritten = two.group.generation
        two.group.unload()
        two.group.load()
        error = two.group.heartbeat(two.ids["a"], unwritten)
        assert error == _codes.ILLEGAL_GENERATION
        two.join("a")
        two.join("b")
        assert two.group.generation == unwritten

    def test_no_session_expires_without_a_coordinator(self, stable):
        stable.group.unload()
        stable.clock.pass_(10 * SESSION)
        stable.group.load()
        stable.clock.pass_(SESSION - 1)
        assert stable.beat("a") == _codes.NONE
        stable.clock.pass_(2)
        assert stable.group.members == (stable.ids["a"],)
