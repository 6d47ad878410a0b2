"""Keeps the members of a consumer group, and their requests to join."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from attrs import define, field, frozen

from safeconsumer.testing import _codes


@frozen(kw_only=True)
class JoinRequest:
    """A member's request to join, with timeouts in seconds."""

    member_id: str
    client_id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    protocols: Mapping[str, bytes]
    is_id_required: bool
    protocol_type: str = "consumer"

    def refused(self, error: int) -> "JoinAnswer":
        """Return an answer that refuses the request with an error."""
        return JoinAnswer(error=error, member_id=self.member_id)


@frozen(kw_only=True)
class JoinAnswer:
    """The answer to a request to join; only the leader gets the list of members."""

    error: int = _codes.NONE
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class Timer(Protocol):
    """A scheduled call, such as asyncio's ``TimerHandle``."""

    def cancel(self) -> None:
        """Cancel the call."""


Schedule = Callable[[float, Callable[[], None]], Timer]
JoinReply = Callable[[JoinAnswer], None]
SyncReply = Callable[[int, bytes], None]


@define(kw_only=True, eq=False)
class Member:
    """A member of a group, with the reply functions for its pending requests."""

    member_id: str
    request: JoinRequest
    assignment: bytes = b""
    join: JoinReply | None = None
    sync: SyncReply | None = None
    owes_sync: bool = False  # whether this generation's SyncGroup is missing
    timer: Timer | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the member is waiting for an answer."""
        return self.join is not None or self.sync is not None

    def answer_join(self, answer: JoinAnswer) -> None:
        """Answer the member's pending JoinGroup, if there is one."""
        join, self.join = self.join, None
        if join is not None:
            join(answer)

    def answer_sync(self, error: int) -> None:
        """Answer the member's pending SyncGroup, if any, with an error or the assignment."""
        sync, self.sync = self.sync, None
        if sync is not None:
            sync(error, b"" if error else self.assignment)

    def refuse(self, error: int) -> None:
        """Answer the member's pending request with an error."""
        self.answer_join(JoinAnswer(error=error, member_id=self.member_id))
        self.answer_sync(error)


@define(eq=False)
class Members:
    """
    The members of a group in the order in which they joined, with their session timers.

    ``on_expiry`` is called with a member that has not sent any request in time.
    """

    _schedule: Schedule
    _on_expiry: Callable[[Member], None]
    _by_id: dict[str, Member] = field(factory=dict)

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def add(self, member: Member) -> None:
        """Add a member and start its session."""
        self._by_id[member.member_id] = member
        self.touch(member)

    def drop(self, member: Member, error: int) -> None:
        """Remove a member, and answer its pending request with the error."""
        del self._by_id[member.member_id]
        self.stop_session(member)
        member.refuse(error)

    def stop_session(self, member: Member) -> None:
        """Stop a member's session timer until :meth:`touch`."""
        if member.timer is not None:
            member.timer.cancel()

    def touch(self, member: Member) -> None:
        """Restart a member's session timer after a request from the member."""
        self.stop_session(member)
        timeout = member.request.session_timeout
        member.timer = self._schedule(timeout, lambda: self._expire(member))

    def static(self, instance_id: str | None) -> Member | None:
        """Return the member with this ``group.instance.id``, or None."""
        if instance_id is None:
            return None
        return next((m for m in self if m.request.instance_id == instance_id), None)

    def can_take(self, request: JoinRequest) -> bool:
        """Return whether all members and the request have a protocol in common."""
        present = [member.request for member in self]
        is_alike = all(p.protocol_type == request.protocol_type for p in present)
        return is_alike and bool(_common([request, *present]))

    def vote(self) -> str:
        """Return the protocol that most members prefer among those that they all support."""
        requests = [member.request for member in self]
        common = _common(requests)
        votes = [next(p for p in r.protocols if p in common) for r in requests]
        return max(votes, key=votes.count)

    def rebalance_timeout(self) -> float:
        """Return the longest rebalance timeout of all members, in seconds."""
        return max(member.request.rebalance_timeout for member in self)

    def described(self, protocol: str) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return each member's ids and metadata, for the leader."""
        return tuple(
            (m.member_id, m.request.instance_id, m.request.protocols[protocol])
            for m in self
        )

    def _expire(self, member: Member) -> None:
        if self._by_id.get(member.member_id) is not member:
            return
        if member.is_waiting:  # a member that is waiting for the group is not late
            self.touch(member)
        else:
            self._on_expiry(member)


def _common(requests: list[JoinRequest]) -> set[str]:
    return set.intersection(*(set(request.protocols) for request in requests))
