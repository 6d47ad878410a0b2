"""
Models a consumer group with the classic protocol's state machine, as brokers do.

The model follows Apache Kafka's group coordinator, with the states and terms of KIP-62,
KIP-345 and KIP-394. A coordinator writes assignments to a log, and the next coordinator
reads them. If the coordinator changes during a rebalance, that rebalance is lost and
its generation number is used again.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from uuid import uuid4

from attrs import frozen

from safeconsumer.testing import _codes
from safeconsumer.testing._members import (
    JoinAnswer,
    JoinReply,
    JoinRequest,
    Member,
    Members,
    Schedule,
    SyncReply,
    Timer,
)


class GroupState(Enum):
    """The states of a group; each value names the event that the group waits for."""

    EMPTY = "its first member"
    PREPARING = "members to join"
    COMPLETING = "the leader's assignment"
    STABLE = "nothing"


@frozen
class _Written:
    """The state that a coordinator has written; ``members`` is as in ``described()``."""

    state: GroupState
    generation: int = 0
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, JoinRequest, bytes], ...] = ()


class Group:
    """A consumer group; use it only on the thread that runs the scheduled calls."""

    def __init__(self, schedule: Schedule) -> None:
        self.generation = 0
        self.protocol_type = ""
        self.state = GroupState.EMPTY
        self._schedule = schedule
        self._members = Members(schedule, self._remove)
        # member ids that were handed out but not used to join yet
        self._expected: dict[str, Timer] = {}
        self._protocol = ""
        self._leader = ""
        self._deadline: Timer | None = None
        self._written = _Written(GroupState.EMPTY)
        self.is_loaded = True

    @property
    def members(self) -> tuple[str, ...]:
        """The members' ids, in the order in which the members joined."""
        return tuple(member.member_id for member in self._members)

    @property
    def protocol(self) -> str:
        """The assignor that the members have agreed on; empty while there is none."""
        is_chosen = self.state in {GroupState.COMPLETING, GroupState.STABLE}
        return self._protocol if is_chosen else ""

    def described(self) -> tuple[tuple[str, JoinRequest, bytes], ...]:
        """Return each member with its join request and, in a stable group, its assignment."""
        is_stable = self.state is GroupState.STABLE
        return tuple(
            (one.member_id, one.request, one.assignment if is_stable else b"")
            for one in self._members
        )

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """Add a member or let it rejoin; ``reply`` is called once, now or later."""
        member_id = request.member_id
        if not self._members.can_take(request):
            reply(request.refused(_codes.INCONSISTENT_GROUP_PROTOCOL))
        elif not member_id:
            self._join_new(request, reply)
        elif member_id in self._expected:
            self._expected.pop(member_id).cancel()
            self._add(member_id, request, reply)
        elif error := self._unknown(member_id, request.instance_id):
            reply(request.refused(error))
        else:
            self._rejoin(self._members[member_id], request, reply)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        reply: SyncReply,
        instance_id: str | None = None,
    ) -> None:
        """Send a member its assignment as soon as the leader has delivered it."""
        error = self._check(member_id, generation, instance_id)
        if not error and self.state is GroupState.PREPARING:
            error = _codes.REBALANCE_IN_PROGRESS
        if error:
            reply(error, b"")
            return
        member = self._members[member_id]
        member.sync, member.owes_sync = reply, False
        if self.state is GroupState.STABLE:
            member.answer_sync(_codes.NONE)
        elif member_id == self._leader:
            self._assign(assignments)
        if not any(one.owes_sync for one in self._members):
            self._set_deadline(None)

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> int:
        """Renew a member's session; return the error code for the answer."""
        error = self._check(member_id, generation, instance_id)
        if not error and self.state is GroupState.PREPARING:
            return _codes.REBALANCE_IN_PROGRESS
        return error

    def commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        is_transactional: bool = False,
    ) -> int:
        """Return the error code for a commit, or 0 if the commit is allowed."""
        is_nobody = not member_id and generation < 0 and instance_id is None
        if (generation < 0 and not self._members) or (is_nobody and is_transactional):
            return _codes.NONE  # from a consumer that uses assign()
        error = self._check(member_id, generation, instance_id)
        is_early = self.state is GroupState.COMPLETING and not is_transactional
        return error or (_codes.REBALANCE_IN_PROGRESS if is_early else _codes.NONE)

    def leave(self, member_id: str, instance_id: str | None = None) -> int:
        """Remove a member; the others are notified at their next heartbeat."""
        if member_id in self._expected:
            self._expected.pop(member_id).cancel()
            self._complete_if_all_joined()
            return _codes.NONE
        static = self._members.static(instance_id)
        if static is not None and not member_id:  # the request is from an admin client
            member_id = static.member_id
        error = self._unknown(member_id, instance_id)
        if not error:
            self._remove(self._members[member_id])
        return error

    def _unknown(self, member_id: str, instance_id: str | None) -> int:
        """Return the error code for a non-member or a fenced static member; 0 if neither."""
        static = self._members.static(instance_id)
        if static is not None and static.member_id != member_id:
            return _codes.FENCED_INSTANCE_ID
        is_gone = instance_id is not None and static is None
        is_member = member_id in self._members and not is_gone
        return _codes.NONE if is_member else _codes.UNKNOWN_MEMBER_ID

    def _check(self, member_id: str, generation: int, instance_id: str | None) -> int:
        """Renew a member's session, or return the error code for a wrong id or generation."""
        error = self._unknown(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return _codes.ILLEGAL_GENERATION
        self._members.touch(self._members[member_id])
        return _codes.NONE

    # Changes of the coordinator

    def unload(self) -> None:
        """Simulate a lost coordinator until :meth:`load`; refuse pending requests."""
        for timer in self._expected.values():
            timer.cancel()
        self._expected.clear()
        self._set_deadline(None)
        for member in self._members:
            self._members.drop(member, _codes.NOT_COORDINATOR)
        written = self._written
        self.state, self.generation = written.state, written.generation
        self._protocol, self._leader = written.protocol, written.leader
        for id_, request, assignment in written.members:
            member = Member(member_id=id_, request=request, assignment=assignment)
            self._members.add(member)
            self._members.stop_session(member)
        self.is_loaded = False

    def load(self) -> None:
        """Simulate a new coordinator that read the written state; restart all sessions."""
        self.is_loaded = True
        for member in self._members:
            self._members.touch(member)

    def _write(self) -> None:
        self._written = _Written(
            self.state,
            self.generation,
            self._protocol,
            self._leader,
            self.described(),
        )

    # Joining

    def _join_new(self, request: JoinRequest, reply: JoinReply) -> None:
        member_id = f"{request.client_id}-{uuid4()}"
        old = self._members.static(request.instance_id)
        if old is not None:
            self._replace_static(old, member_id, request, reply)
        elif request.is_id_required and request.instance_id is None:
            self._expected[member_id] = self._schedule(
                request.session_timeout, lambda: self._forget_expected(member_id)
            )
            answer = JoinAnswer(error=_codes.MEMBER_ID_REQUIRED, member_id=member_id)
            reply(answer)
        else:
            self._add(member_id, request, reply)

    def _forget_expected(self, member_id: str) -> None:
        if self._expected.pop(member_id, None) is not None:
            self._complete_if_all_joined()

    def _add(self, member_id: str, request: JoinRequest, reply: JoinReply) -> None:
        self.protocol_type = request.protocol_type
        self._members.add(Member(member_id=member_id, request=request, join=reply))
        self._rebalance()

    def _rejoin(self, member: Member, request: JoinRequest, reply: JoinReply) -> None:
        before, now = member.request.protocols, request.protocols
        # a changed order of the protocols matters, too
        is_changed = list(before.items()) != list(now.items())
        is_leader = member.member_id == self._leader
        member.request = request
        self._members.touch(member)
        if is_changed or self.state is GroupState.PREPARING:
            is_answered = False
        else:
            # The request is unchanged, so the member gets the old answer again. In a
            # stable group, only the leader's request starts a rebalance, because the
            # leader has noticed changed topics.
            is_answered = not (is_leader and self.state is GroupState.STABLE)
        if is_answered:
            reply(self._answer(member))
        else:
            member.join = reply
            self._rebalance()

    def _replace_static(
        self, old: Member, member_id: str, request: JoinRequest, reply: JoinReply
    ) -> None:
        """Let a restarted static member continue under a new member id."""
        self._members.drop(old, _codes.FENCED_INSTANCE_ID)
        member = Member(member_id=member_id, request=request, assignment=old.assignment)
        member.owes_sync = old.owes_sync
        self._members.add(member)
        old_leader = self._leader
        if old.member_id == old_leader:
            self._leader = member_id
        if self.state is GroupState.STABLE and self._members.vote() == self._protocol:
            # Like brokers, answer without a rebalance, even if the member now
            # subscribes to other topics. The answer contains the old leader's id, so
            # the member does not assign partitions.
            self._write()
            reply(self._answer(member, leader=old_leader))
        else:
            member.join = reply
            self._rebalance()

    def _answer(self, member: Member, leader: str | None = None) -> JoinAnswer:
        leader = self._leader if leader is None else leader
        is_leader = member.member_id == leader
        return JoinAnswer(
            generation=self.generation,
            protocol=self._protocol,
            leader=leader,
            member_id=member.member_id,
            members=self._members.described(self._protocol) if is_leader else (),
        )

    # The rebalance

    def _rebalance(self) -> None:
        """Start a rebalance unless one is running; complete it if all members have joined."""
        self._answer_syncs(_codes.REBALANCE_IN_PROGRESS)
        if self.state is not GroupState.PREPARING:
            self.state = GroupState.PREPARING
            self._set_deadline(self._members.rebalance_timeout(), self._complete)
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        if self.state is not GroupState.PREPARING or self._expected:
            return
        if all(member.join is not None for member in self._members):
            self._complete()

    def _complete(self) -> None:
        """End the joining phase; remove dynamic members that have not joined."""
        for member in self._members:
            if member.join is None and member.request.instance_id is None:
                self._members.drop(member, _codes.UNKNOWN_MEMBER_ID)
        joined = [one.member_id for one in self._members if one.join is not None]
        if not self._members:
            self._empty()
        elif not joined:
            longest = self._members.rebalance_timeout()
            self._set_deadline(longest, self._complete)
        else:
            self._leader = self._leader if self._leader in joined else joined[0]
            self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self._protocol = self._members.vote()
        self.state = GroupState.COMPLETING
        longest = self._members.rebalance_timeout()
        self._set_deadline(longest, self._drop_unsynced)
        for member in self._members:
            self._members.touch(member)
            member.owes_sync = True
            member.answer_join(self._answer(member))

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        self.state = GroupState.STABLE
        for member in self._members:
            member.assignment = assignments.get(member.member_id, b"")
        self._write()
        self._answer_syncs(_codes.NONE)

    def _answer_syncs(self, error: int) -> None:
        for member in self._members:
            if member.sync is not None:
                self._members.touch(member)
                member.answer_sync(error)

    def _drop_unsynced(self) -> None:
        for member in self._members:
            if member.owes_sync:
                self._members.drop(member, _codes.UNKNOWN_MEMBER_ID)
        self._go_on_without()

    def _remove(self, member: Member) -> None:
        self._members.drop(member, _codes.UNKNOWN_MEMBER_ID)
        self._go_on_without()

    def _go_on_without(self) -> None:
        if self._members:
            self._rebalance()
        else:
            self._empty()

    def _empty(self) -> None:
        self._set_deadline(None)
        self.generation += 1
        self.state = GroupState.EMPTY
        self._write()

    def _set_deadline(
        self, seconds: float | None, then: Callable[[], None] = lambda: None
    ) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self._schedule(seconds, then)
