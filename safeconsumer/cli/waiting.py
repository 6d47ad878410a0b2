"""Waits until a group is quiet, or flows again."""

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
# Seconds that one look at the group may take, even if less time is left.
_MIN_LOOK = 1.5
# Seconds; a shorter time is printed with a decimal.
_SHORT = 10.0


@frozen(kw_only=True)
class Outcome:
    """
    The result of a wait.

    Attributes:
        is_reached: whether the group is in the wanted state.
        sentence: the last state, as text.
        waited: the seconds that the wait took.
    """

    is_reached: bool
    sentence: str
    waited: float

    def document(self) -> dict[str, object]:
        """Return the outcome as plain JSON values."""
        return {**asdict(self), "waited": round(self.waited, 3)}


class NeverReachedError(Exception):
    """A condition can no longer be met; the text has the reason."""


NOT_FLOWING = "not flowing: "
# Returns whether a group is in the wanted state, and a sentence about it; the argument
# is the end of the wait on the monotonic clock, because a condition may query the
# cluster.
Condition = Callable[[View, float], tuple[bool, str]]
# Raises at the first look if the wait cannot succeed; a check may query the cluster.
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
    Read the group repeatedly until it is in the wanted state, or the time is over.

    Members need not have read records that are written during the wait. The wait
    continues during an outage, whose start it reports on stderr; a broker that accepts
    connections but does not answer gets all the time that is left.

    Args:
        operator: the connection.
        group: the group.
        condition: judges a view of the group.
        timeout: the seconds to wait.
        check: raises if the wait cannot succeed; called once.
        began: the start of these seconds, on the monotonic clock; None for now.

    Raises:
        KafkaError: the broker does not answer when the time is over, or refuses a
            request.
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
            trouble = error  # the outage may end in time
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
    # The message has the time of the whole wait, not that of one request. That time
    # exceeds the user's timeout if the timeout is shorter than a check.
    if not isinstance(trouble, KafkaTimeoutError):
        return trouble
    is_short = waited < _SHORT
    limit = f"{round(waited, 1):g}s" if is_short else duration_text(waited)
    return KafkaTimeoutError(f"no answer within {limit}")


def _left(until: float) -> float:
    return max(until - time.monotonic(), _MIN_LOOK)


def is_quiet(view: View, scopes: Sequence[Covering]) -> tuple[bool, str]:
    """Judge whether no record of the scopes, or of held partitions, is delivered."""
    if view.ends is None:
        return False, f"which members are quiet is unknown: {'; '.join(view.unread)}"
    reached = view.quietness(scopes)
    return reached.is_reached, reached.sentence()


def is_moved(view: View, scopes: Sequence[Scope]) -> tuple[bool, str]:
    """
    Judge whether resets have moved all their partitions of the scopes.

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
    Judge like :func:`is_flowing`, except that a deleted topic does not flow.

    Raises:
        KafkaError: the brokers do not answer which topics exist.
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
    Judge whether all partitions of the scopes are delivered again.

    Without scopes, all partitions of the group are judged, except topics with commits
    that no member reads any more. A Spark stream counts only for partitions that the
    group's members do not consume: a partition that a member keeps quiet does not flow
    just because a stream reads it, too.
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
