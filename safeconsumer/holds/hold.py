"""Defines a hold, with its scope, owner, reason, start and expiry."""

import enum
import math
import re
import shlex
from collections.abc import Iterable, Iterator
from datetime import timedelta

from attrs import field, frozen

from safeconsumer.errors.base import HoldSettingError
from safeconsumer.holds.scope import Partition, Scope

# Long enough for a sentence and a link, but short enough for a log line.
MAX_REASON_BYTES = 1024
MAX_OWNER_LENGTH = 249

# Matches line breaks and tabs, with the spaces around them.
_BREAK = re.compile(r"\s*[^\S ]\s*")

# The owner of holds that the drop-in ``pause()`` places.
APP = "app"

# The owner of a whole pause, which is a hold of a topic. The application places a whole
# pause by pausing all assigned partitions of the topic.
WHOLE = "app (all)"

# The owner of the holds that this member places on partitions until it has moved them
# to the offsets of an operator's reset. Calls by the program must not use this owner.
RESET = "operator's reset"

# Holds from the holds topic have owners with this prefix; calls by the program must not
# use it.
OPERATOR = "operator:"
# Holds that a worker places have owners with this prefix.
WORKER = "worker:"
# The owners of a worker's holds that last for the length of an outage: one for pauses
# that handlers request, and one for breakers. A worker places and lifts its other holds
# continuously.
OUTAGE, BREAKER = f"{WORKER}outage", f"{WORKER}breaker"
OUTAGES = frozenset({OUTAGE, BREAKER})


# The kinds of owners; metrics count holds by kind.
KINDS = ("local", "worker", "operator")


class WorkerOwner(str):
    """The owner name of a worker's hold; no other owner may have the prefix ``worker:``."""

    __slots__ = ()


class Lifetime(enum.Enum):
    """The event that ends a hold, besides its expiry and a resume by its owner."""

    UNTIL_RESUMED = "until_resumed"
    """No event ends the hold, not even a rebalance or a lost membership."""

    WHILE_ASSIGNED = "while_assigned"
    """The hold ends when the last partition it covered here is revoked or lost for good."""

    PLAIN = "plain"
    """
    The lifetime of a plain pause, which no caller can request. The pause ends with a
    completed join or an ``assign`` that leaves the partition out, with ``unsubscribe``,
    and, while the partition is not assigned, with any resume by the application.
    """


HoldKey = tuple[Scope, str]


@frozen(kw_only=True)
class Hold:
    """
    One owner's request to keep a scope quiet.

    Attributes:
        scope: what is held: a partition, a topic, a pattern, or everything.
        owner: the owner; no owner can change another owner's holds.
        reason: free text for people, or None.
        placed_at: seconds since the epoch.
        expires_at: seconds since the epoch, or None for no limit.
        lifetime: the event that ends the hold without a resume.
        deadline: the expiry on this process's monotonic clock, in seconds.
        beneath: the ``until_resumed`` hold, with the same scope and owner, over which
            this plain pause was placed. The hold ends earlier than the pause, but is in
            force again if the pause ends before that without a resume.
        record: a tuple of the timestamp of the hold's record on the holds topic, in
            seconds since 1970 or None, and the record's offset; None if the hold has no
            record.
    """

    scope: Scope
    owner: str = APP
    reason: str | None = None
    placed_at: float = 0.0
    expires_at: float | None = None
    lifetime: Lifetime = Lifetime.UNTIL_RESUMED
    deadline: float | None = field(default=None, eq=False, repr=False)
    beneath: "Hold | None" = field(default=None, eq=False, repr=False)
    record: tuple[float | None, int] | None = field(default=None, eq=False, repr=False)

    @property
    def is_remote(self) -> bool:
        """Return whether the hold is from the holds topic, so ``resume`` cannot lift it."""
        return self.owner.startswith(OPERATOR)

    @property
    def is_routine(self) -> bool:
        """Return whether a worker placed the hold to limit its own load."""
        return is_routine(self.owner)

    def lifted_by(self, group_id: str | None = None) -> str:
        """
        Return, as text for people, the call or command that lifts the hold.

        Args:
            group_id: the consumer group, which the command must name.
        """
        if self.owner.startswith(OPERATOR):
            owner = self.owner.removeprefix(OPERATOR)
            words = ("safeconsumer", "resume", "--group", group_id or "GROUP")
            what = (*words, "--owner", owner)
            where, scope = ("--bootstrap", "HOST:PORT"), str(self.scope)
            if scope.startswith("-"):  # it would look like an option
                return shlex.join((*what, *where, "--", scope))
            return shlex.join((*what, scope, *where))
        if self.owner == WHOLE:
            return "resume(*assignment())"
        if self.owner == RESET:
            return "nothing: the hold ends once this member has moved the partition"
        whose = "" if self.owner == APP else f", owner={self.owner!r}"
        return f"resume({str(self.scope)!r}{whose})"

    @property
    def key(self) -> HoldKey:
        """The scope and the owner, which identify a hold."""
        return self.scope, self.owner

    def requests_the_same_as(self, other: "Hold") -> bool:
        """Return whether replacing ``other`` with this hold would have no effect."""
        return (
            self.deadline is None
            and other.deadline is None
            and self.reason == other.reason
            and self.lifetime is other.lifetime
        )

    def as_dict(self) -> dict[str, object]:
        """Return the hold as plain JSON values."""
        return {
            "scope": str(self.scope),
            "owner": self.owner,
            "reason": self.reason,
            "placed_at": self.placed_at,
            "expires_at": self.expires_at,
            "lifetime": self.lifetime.value,
        }


def end_of(hold: Hold) -> float:
    """Return when a hold expires, on the monotonic clock; infinity if it never does."""
    return math.inf if hold.deadline is None else hold.deadline


def with_beneath(holds: Iterable[Hold], now: float) -> Iterator[Hold]:
    """
    Yield holds, each followed by its ``beneath``, if that has not expired.

    Args:
        holds: the holds.
        now: the current time on the monotonic clock, seconds.
    """
    for hold in holds:
        yield hold
        if hold.beneath is not None and end_of(hold.beneath) > now:
            yield hold.beneath


def make_holds(  # noqa: PLR0913 - a hold has that many properties
    scopes: Iterable[Scope],
    *,
    owner: str,
    reason: str | None,
    times: tuple[float, float],
    for_: float | None = None,
    lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
) -> tuple[Hold, ...]:
    """
    Return one new hold per scope; only holds of single partitions may be plain pauses.

    ``times`` is the current time, on the monotonic clock and in seconds since the
    epoch.
    """
    now, at = times
    strict = Lifetime.UNTIL_RESUMED if lifetime is Lifetime.PLAIN else lifetime
    expires_at, deadline = (None, None) if for_ is None else (at + for_, now + for_)
    return tuple(
        [
            Hold(
                scope=scope,
                owner=owner,
                reason=reason,
                placed_at=at,
                expires_at=expires_at,
                lifetime=lifetime if isinstance(scope, Partition) else strict,
                deadline=deadline,
            )
            for scope in scopes
        ]
    )


def kind_of(owner: str) -> str:
    """Return the owner's kind, one of :data:`KINDS`."""
    if owner.startswith(OPERATOR):
        return "operator"
    return "worker" if owner.startswith(WORKER) else "local"


def is_routine(owner: str) -> bool:
    """Return whether a worker places holds of this owner to limit its own load."""
    return owner.startswith(WORKER) and owner not in OUTAGES


def checked_owner(owner: object) -> str:
    """
    Check that a program may change an owner's holds; return the owner.

    Raises:
        HoldSettingError: :func:`checked_name` refuses the owner, or the owner is
            reserved for operators' holds or resets.
    """
    if owner is APP:  # the usual case
        return APP
    name = checked_name(owner)
    if name == RESET:
        message = (
            f"owner {name!r} is reserved: its partitions flow once they are moved to the "
            "offsets that the group is reset to, or the operator's hold is lifted"
        )
        raise HoldSettingError(message)
    if name.startswith(OPERATOR):
        message = (
            f"owner {name[:60]!r} is reserved for operators' holds: the command "
            "safeconsumer resume and Operator.resume() lift them"
        )
        raise HoldSettingError(message)
    return name


def operator_name(owner: object) -> str:
    """
    Return the name of an operator without the prefix ``operator:``, if present.

    Members and commands show ``operator:alice`` as the owner of ``alice``'s holds.

    Raises:
        HoldSettingError: :func:`checked_owner` refuses the name.
    """
    return checked_owner(checked_name(owner).removeprefix(OPERATOR))


def checked_name(owner: object) -> str:
    """
    Check that an owner is a valid name, even if reserved; return the owner.

    Raises:
        HoldSettingError: the owner is empty, too long or not printable text.
    """
    if (
        not isinstance(owner, str)
        or not owner.strip()
        or len(owner) > MAX_OWNER_LENGTH
        or not owner.isprintable()
    ):
        message = (
            f"owner must be 1 to {MAX_OWNER_LENGTH} printable characters, "
            f"not {str(owner)[:60]!r}"
        )
        raise HoldSettingError(message)
    return owner


def checked_placer(owner: object) -> str:
    """
    Check that an owner may place a hold; return the owner.

    Raises:
        HoldSettingError: :func:`checked_owner` refuses the owner, or the owner is
            reserved for whole pauses or a worker's own holds.
    """
    if owner is APP:  # the usual case
        return APP
    name = checked_owner(owner)
    if name == WHOLE:
        message = f"owner {name!r} is reserved: pause(*assignment()) places its holds"
        raise HoldSettingError(message)
    if name.startswith(WORKER) and not isinstance(owner, WorkerOwner):
        message = (
            f"owner {name[:60]!r} is reserved for holds that a Worker places: "
            f"use a name that does not begin with {WORKER!r}"
        )
        raise HoldSettingError(message)
    return name


def checked_reason(reason: object) -> str | None:
    """
    Check a reason; return it on one line, or None.

    Raises:
        HoldSettingError: the reason is not text, has control characters other than tabs
            and line breaks, or is longer than 1,024 bytes of UTF-8.
    """
    if reason is None:
        return None
    if isinstance(reason, str) and not reason.isprintable():
        reason = _BREAK.sub(" ", reason).strip()
    if not isinstance(reason, str) or not reason.isprintable():
        message = "reason must be text without control characters"
        raise HoldSettingError(message)
    if len(reason.encode("utf-8", "surrogatepass")) > MAX_REASON_BYTES:
        message = f"reason must be at most {MAX_REASON_BYTES} bytes of UTF-8"
        raise HoldSettingError(message)
    return reason


def checked_duration(for_: object) -> float | None:
    """
    Check a duration; return it in seconds, or None for no limit.

    Raises:
        HoldSettingError: the duration is not a positive, finite number of seconds.
    """
    if for_ is None:
        return None
    if isinstance(for_, timedelta):
        for_ = for_.total_seconds()
    if not isinstance(for_, int | float) or isinstance(for_, bool):
        message = f"for_ must be seconds or a timedelta, not {for_!r}"
        raise HoldSettingError(message)
    try:
        seconds = float(for_)
    except OverflowError:  # an int too large for a float
        seconds = math.inf
    if not math.isfinite(seconds) or seconds <= 0:
        message = f"for_ must be a positive, finite number of seconds, not {for_!r:.60}"
        raise HoldSettingError(message)
    return seconds


def checked_lifetime(lifetime: object) -> Lifetime:
    """
    Check that a caller may choose a lifetime; return the lifetime.

    Raises:
        HoldSettingError: the value is not a :class:`Lifetime`, or is
            ``Lifetime.PLAIN``.
    """
    if not isinstance(lifetime, Lifetime) or lifetime is Lifetime.PLAIN:
        message = (
            "lifetime must be Lifetime.UNTIL_RESUMED or Lifetime.WHILE_ASSIGNED, not "
            f"{lifetime!r}; leave it out for a plain pause"
        )
        raise HoldSettingError(message)
    return lifetime
