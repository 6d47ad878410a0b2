"""Waits until a group is quiet, its resets are done, or its records flow again."""

import time
from collections.abc import Callable, Sequence

import click
from attrs import asdict, evolve, frozen
from kafka import TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from safeconsumer.cli.errors import status_of
from safeconsumer.cli.statuses import Status
from safeconsumer.group.durations import duration_text
from safeconsumer.group.movements import movements
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import Covering, covered, meeting, partitions_text
from safeconsumer.group.troubles import error_text
from safeconsumer.group.view import View
from safeconsumer.holds.scope import Scope

_INTERVAL = 0.25
# Seconds that one read of the group may take, even if less time is left.
_MIN_LOOK = 1.5
# Seconds; shorter times are printed with one decimal.
_SHORT = 10.0


@frozen(kw_only=True)
class Outcome:
    """
    The result of a wait.

    Attributes:
        is_reached: whether the group has reached the wanted state.
        sentence: the group's last state as text.
        waited: the seconds that the wait took.
    """

    is_reached: bool
    sentence: str
    waited: float

    def document(self) -> dict[str, object]:
        """Return the outcome as plain JSON values."""
        return {**asdict(self), "waited": round(self.waited, 3)}


class NeverReachedError(Exception):
    """The condition can never be met; the text gives the reason."""


NOT_FLOWING = "not flowing: "
# Returns whether a group is in the wanted state, and a sentence about it. The second
# argument is when the wait ends, on the monotonic clock, because a condition may query
# the cluster.
Condition = Callable[[View, float], tuple[bool, str]]
# Raises after the first read if the wait cannot succeed; a check may query the cluster.
Check = Callable[[Operator, View], None]


def wait_until(  # noqa: PLR0913 - three things to wait for, and two limits
    operator: Operator,
    group: str,
    condition: Condition,
    timeout: float,
    check: Check | None = None,
    *,
    began: float | None = None,
) -> Outcome:
    """
    Read the group repeatedly until it is in the wanted state or the time is up.

    Members do not need to have read records that are written during the wait. The wait
    continues during an outage, and reports the outage on stderr. A broker that accepts
    connections but does not answer may use up all the time that is left.

    Args:
        operator: the connection.
        group: the group.
        condition: decides whether a view of the group shows the wanted state.
        timeout: the seconds to wait.
        check: called once; raises if the wait cannot succeed.
        began: the ``time.monotonic()`` at which the timeout began; None for now.

    Raises:
        KafkaError: the broker does not answer by the end, or refuses a request.
    """
    began = time.monotonic() if began is None else began
    ends, trouble, last, until = None, None, (False, ""), began + timeout
    while True:
        was_well = trouble is None
        try:
            view = _look(operator, group, until, check)
            check = trouble = None
            ends = view.ends if ends is None else ends
            known = None if view.ends is None else ends
            last = condition(evolve(view, ends=known), until)
        except NeverReachedError as error:
            last, timeout = (False, str(error)), 0.0
        except (KafkaError, OSError) as error:
            if status_of(error) is not Status.UNREACHABLE:
                raise
            trouble = error  # the outage may end before the time is up
        waited = time.monotonic() - began
        if trouble is not None and waited + _INTERVAL > timeout:
            raise _timeout_error(trouble, waited)
        if last[0] or waited > timeout:
            return Outcome(is_reached=last[0], sentence=last[1], waited=waited)
        if trouble is not None and was_well:
            click.echo(f"{error_text(trouble)}; trying again", err=True)
        time.sleep(min(_INTERVAL, max(0.0, timeout - waited)))


def _look(operator: Operator, group: str, until: float, check: Check | None) -> View:
    view = operator.look(group, has_lags=False, timeout=_left(until))
    if check is not None:
        operator.within(_left(until), lambda one: check(one, view))
    return view


def _timeout_error(
    trouble: KafkaError | OSError, waited: float
) -> KafkaError | OSError:
    # The message contains the time of the whole wait, not of one request. That time may
    # exceed the user's timeout if the timeout is shorter than one read of the group.
    if not isinstance(trouble, KafkaTimeoutError):
        return trouble
    is_short = waited < _SHORT
    limit = f"{round(waited, 1):g}s" if is_short else duration_text(waited)
    return KafkaTimeoutError(f"no answer within {limit}")


def _left(until: float) -> float:
    return max(until - time.monotonic(), _MIN_LOOK)


def is_quiet(view: View, scopes: Sequence[Covering]) -> tuple[bool, str]:
    """Return whether the scopes are quiet, and a sentence about them."""
    if view.ends is None:
        return False, f"which members are quiet is unknown: {'; '.join(view.unread)}"
    reached = view.quietness(scopes)
    return reached.is_reached, reached.sentence()


def is_moved(view: View, scopes: Sequence[Scope]) -> tuple[bool, str]:
    """
    Return whether all resets in the scopes are done, and a sentence about them.

    Raises:
        NeverReachedError: no reset is in force, because its hold was lifted or never
            placed.
    """
    if view.ends is None:
        return False, f"which partitions are moved is unknown: {'; '.join(view.unread)}"
    found = movements(view, scopes)
    left = [one for one in found if not one.is_moved]
    if not found:
        message = "no reset is in force for these partitions"
        raise NeverReachedError(message)
    if not left:
        return True, f"moved: {partitions_text(one.tp for one in found)}"
    return False, "; ".join(f"{one.name} {one.sentence()}" for one in left[:5])


def flows(
    operator: Operator, view: View, scopes: Sequence[Scope], until: float
) -> tuple[bool, str]:
    """
    Return the same as :func:`is_flowing`, but do not count deleted topics as flowing.

    Raises:
        KafkaError: the brokers do not say which topics exist.
    """
    reached, sentence = is_flowing(view, scopes)
    if reached:
        names = {tp.topic for tp in _wanted(view, scopes)}
        if gone := operator.within(_left(until), lambda one: one.missing(names)):
            return False, f"{NOT_FLOWING}there is no topic {', '.join(gone)} any more"
    return reached, sentence


def _wanted(view: View, scopes: Sequence[Scope]) -> tuple[TopicPartition, ...]:
    return covered(scopes, view.consumed) if scopes else view.consumed


def _is_delivered(view: View, tp: TopicPartition) -> bool:
    owners = view.owners(tp)
    return bool(owners) and all(one.delivers(tp) for one in owners)


def is_flowing(view: View, scopes: Sequence[Scope]) -> tuple[bool, str]:
    """
    Return whether the records of all partitions in the scopes flow, and a sentence.

    Without scopes, this applies to all partitions of the group, except topics with
    commits that no member reads any more. A Spark stream counts only for partitions
    that the group's members do not consume: if a member keeps a partition quiet, the
    partition does not count as flowing just because a stream reads it, too.
    """
    wanted = _wanted(view, scopes)
    if holding := meeting(view.holds, wanted):
        names = ", ".join(f"{one.key.scope} by {one.key.owner}" for one in holding[:5])
        return False, f"held: {names}"
    if view.ends is None:
        return False, f"which partitions flow is unknown: {'; '.join(view.unread)}"
    behind = [one for one in view.present if not one.obeys]
    if behind:
        reasons = (f"{one.name} {one.verdict.sentence}" for one in behind[:5])
        return False, "; ".join(reasons)
    left = () if scopes else view.no_longer_read
    wanted = tuple(tp for tp in wanted if tp.topic not in left)
    judge = view.without_streams
    of_members = frozenset(judge.consumed)
    still = {
        tp
        for tp in wanted
        if not _is_delivered(judge if tp in of_members else view, tp)
    }
    if not wanted:
        nothing = "the group owns no partition, and has committed no offset"
        return False, f"{NOT_FLOWING}{nothing}"
    if still:
        rows = {one.tp: one for one in (*view.partitions, *judge.partitions)}
        whys = dict.fromkeys(rows[tp].verdict.sentence for tp in rows if tp in still)
        return False, "; ".join([f"{NOT_FLOWING}{partitions_text(still)}", *whys])
    besides = f"; no member of the group reads {', '.join(left)}" if left else ""
    return True, f"flowing: {partitions_text(wanted)}{besides}"
