"""Parses scopes as users type them, and suggests corrections for mistakes."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from kafka import TopicPartition

from safeconsumer.errors.base import HoldSettingError, ScopeSyntaxError
from safeconsumer.group import patterns, wire
from safeconsumer.group.partitions import meeting, partitions_text, scopes_text
from safeconsumer.group.view import View
from safeconsumer.holds import ranges
from safeconsumer.holds.explain import first_of
from safeconsumer.holds.scope import Everything, Partition, Pattern, Scope

_FEW = 5


def scopes_of(texts: Iterable[str], group: str) -> tuple[Scope, ...]:
    """
    Parse scopes; ``orders:0-2,5`` gives four scopes.

    Raises:
        HoldSettingError: the group's name is invalid.
        ScopeSyntaxError: a text is neither a scope nor a range.
        MissingExtraError: a text is a pattern, and google-re2 is missing.
    """
    checked_group(group)
    every = (one for text in texts for one in ranges.spread(text))
    found = tuple(dict.fromkeys(islice(every, ranges.MOST + 1)))
    if len(found) > ranges.MOST:
        message = f"more than {ranges.MOST} holds at once: name the topic for all of it"
        raise ScopeSyntaxError(message)
    return tuple(map(_parsed, found))


def _parsed(text: str) -> Scope:
    try:
        return patterns.parse(text)
    except ScopeSyntaxError as error:
        if "," not in text or text.startswith("re:"):
            raise
        several = " ".join(filter(None, text.split(",")))
        message = f"{error}; write several scopes with spaces between them: {several}"
        raise ScopeSyntaxError(message) from error


def checked_group(group: str) -> str:
    """
    Return a group's name if control records can store it.

    Raises:
        HoldSettingError: control records cannot store the name.
    """
    if wire.is_group(group):
        return group
    shown = ascii(group[:60]) + ("..." if len(group) > 60 else "")  # noqa: PLR2004 - a line's worth
    message = f"a group must be printable text of 1 to 1024 characters, not {shown}"
    raise HoldSettingError(message)


def mistakes(
    view: View, scopes: Iterable[Scope], topics: Callable[[], Sequence[str]]
) -> str:
    """
    Describe the scopes that cover no partition of the group, each with a suggestion.

    If the group's partition owners are unknown, the description only says so. ``@all``
    is never a mistake.

    Args:
        view: the group.
        scopes: the scopes as they were typed.
        topics: returns the names of all topics; called only if a scope covers nothing
            and the owners are known.
    """
    here, several = view.consumed, tuple(scopes)
    met = frozenset(meeting(several, here))
    empty = [
        one for one in several if one not in met and not isinstance(one, Everything)
    ]
    if empty and view.unsettled:
        named = scopes_text(empty)
        return f"whether {view.group} consumes {named} is not known: {view.unsettled}"
    known = topics() if empty else ()
    by_topic: dict[object, list[Scope]] = {}
    for one in empty:  # one description for all partitions of a topic
        topic = one.topic if isinstance(one, Partition) else one
        by_topic.setdefault(topic, []).append(one)
    described = [
        f"{_cover_nothing(several)} that {view.group} consumes"
        f"{_hint(several[0], here, known)}"
        for several in islice(by_topic.values(), _FEW)
    ]
    left = len(by_topic) - len(described)
    return "; ".join([*described, *([f"and {left} more scopes"] if left else [])])


def _cover_nothing(several: Sequence[Scope]) -> str:
    if len(several) == 1:
        return f"{several[0]} covers nothing"
    partitions = (
        TopicPartition(one.topic, one.partition)
        for one in several
        if isinstance(one, Partition)
    )
    return f"{partitions_text(partitions)} cover nothing"


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return "did you mean" and the most similar names, as the end of a sentence."""
    found = get_close_matches(name, dict.fromkeys(names), n=3)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def unknown_group(view: View, names: Iterable[str]) -> str:
    """Return a message saying that a group is unknown, with a suggestion."""
    held = "and no hold for it"
    if view.ends is None:
        held = f"and whether it is held is not known ({'; '.join(view.unread)})"
    return f"unknown group {view.group!r}, {held}{suggestion(view.group, names)}"


def _hint(scope: Scope, here: Iterable[TopicPartition], known: Sequence[str]) -> str:
    own = {tp.topic for tp in here}
    if isinstance(scope, Pattern):
        of_re = "re" in own and ranges.NUMBERS.fullmatch(scope.text)
        meant = (
            f"; for partitions of a topic named re, write re:{scope}" if of_re else ""
        )
        return f"; it consumes {_some(own)}{meant}"
    topic = str(getattr(scope, "topic", ""))
    if topic in own:
        numbers = partitions_text(tp for tp in here if tp.topic == topic)
        return f": it has {numbers}"
    if topic == "all":
        return ": everything is @all"
    if topic in known:
        return f", though there is such a topic; it consumes {_some(own)}"
    meant = suggestion(topic, own) or suggestion(topic, [*known, "@all"])
    return meant or f"; it consumes {_some(own)}"


def _some(names: Iterable[str]) -> str:
    return first_of(sorted(names)) or "nothing"
