"""
Waiting until a group is quiet, or flows again.
"""

import time
from collections.abc import Callable, Sequence

from attrs import frozen

from safeconsumer.cli import scoping
from safeconsumer.group import judging
from safeconsumer.group.operator import Operator
from safeconsumer.group.picture import Picture
from safeconsumer.holds.scope import Scope

_LOOK_EVERY = 0.25


@frozen(kw_only=True)
class Outcome:
    """
    How a wait ended.

    Attributes:
        is_reached: whether it is as was waited for.
        sentence: what was seen last.
        waited: seconds.
    """

    is_reached: bool
    sentence: str
    waited: float

    def document(self) -> dict[str, object]:
        """
        Return it as plain JSON values.
        """
        return {
            "is_reached": self.is_reached,
            "sentence": self.sentence,
            "waited": round(self.waited, 3),
        }


# Says of a picture whether it is as is waited for, and what is seen.
Judge = Callable[[Picture], tuple[bool, str]]


def wait_until(operator: Operator, group: str, judge: Judge, timeout: float) -> Outcome:
    """
    Look again and again until it is so, or the time is over.
    """
    began = time.monotonic()
    while True:
        is_reached, sentence = judge(operator.look(group))
        waited = time.monotonic() - began
        if is_reached or waited > timeout:
            return Outcome(is_reached=is_reached, sentence=sentence, waited=waited)
        time.sleep(min(_LOOK_EVERY, max(0.0, timeout - waited)))


def is_quiet(picture: Picture, scopes: Sequence[Scope]) -> tuple[bool, str]:
    """
    Judge whether nothing of the scopes is delivered; without any, of what is held.
    """
    partitions = scoping.partitions_of(picture)
    wanted = scoping.covered(scopes or picture.standing, partitions)
    if picture.ends is None:
        return False, f"nobody knows who is quiet: {'; '.join(picture.unread)}"
    reached = judging.quietness(
        picture.facts, picture.reports, dict(picture.ends), wanted
    )
    if not wanted:
        return False, "nobody owns any of it now"
    return reached.is_reached, reached.sentence()


def is_flowing(picture: Picture, scopes: Sequence[Scope]) -> tuple[bool, str]:
    """
    Judge whether all of the scopes is delivered again; without any, all of the group.
    """
    partitions = scoping.partitions_of(picture)
    wanted = scoping.covered(scopes, partitions) if scopes else partitions
    holding = [one for one in picture.standing if any(one.covers(tp) for tp in wanted)]
    if holding:
        names = ", ".join(f"{one.key.scope} by {one.key.owner}" for one in holding[:5])
        return False, f"held: {names}"
    if picture.ends is None:
        return False, f"nobody knows what flows: {'; '.join(picture.unread)}"
    owned = picture.facts.assigned | judging.assigned(picture.reports)
    unowned = [tp for tp in wanted if tp not in owned]
    if unowned or not wanted:
        shown = judging.partitions_text(unowned) or "any of it"
        return False, f"nobody owns {shown} now"
    behind = [
        one for one in picture.reports if not judging.has_applied(one, picture.ends)
    ]
    if behind:
        names = ", ".join(sorted({one.client_id for one in behind})[:5])
        return False, f"not heard of it yet: {names}"
    quiet = judging.quiet_at(picture.reports)
    still = [tp for tp in wanted if tp in quiet]
    if still:
        shown = judging.partitions_text(still)
        who = ", ".join(sorted({quiet[tp] for tp in still})[:5])
        return False, f"still quiet at {who}, by its own holds: {shown}"
    return True, f"flowing: {judging.partitions_text(wanted)}"
