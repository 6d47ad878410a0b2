"""Reads what is held before a write, and tells afterwards what the write overwrote."""

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen
from kafka.errors import KafkaError

from safeconsumer.console.state import State
from safeconsumer.errors import ControlTopicError
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.overtaking import overwritten, overwrote
from safeconsumer.group.picture import Picture, skew_of
from safeconsumer.group.publisher import Acknowledged
from safeconsumer.group.troubles import said


@frozen(kw_only=True)
class Seen:
    """
    The holds as they were read, and up to where.

    Attributes:
        picture: the picture of the group, with these holds.
        ends: the end offsets of the control topics before that.
        standing: the holds that are on the topics, also those that have ended.
    """

    picture: Picture
    ends: Mapping[str, int]
    standing: tuple[Standing, ...]

    def missed(
        self, operator: Operator, source: str, done: Sequence[Acknowledged]
    ) -> str:
        """Tell what was overwritten that somebody wrote since; "" if nothing was."""
        since = self.ends[operator.topic_of(source)]
        try:
            found = overwritten(operator, source, done, since)
        except (ControlTopicError, KafkaError, OSError) as error:
            return f"whether you overwrote what others wrote is unknown: {said(error)}"
        return overwrote([one for one in found if one not in self.standing])


def read(state: State, operator: Operator, picture: Picture) -> Seen:
    """Read the holds now: the follower may be behind, or cut off and not know it yet."""
    found, ends = operator.standing(picture.group)
    now = evolve(picture, standing=found).best
    skew = skew_of(state.follower.settings.clock_skew, picture.reports)
    standing = tuple(one for one in found if one.in_force(now, skew))
    return Seen(picture=evolve(picture, standing=standing), ends=ends, standing=found)
