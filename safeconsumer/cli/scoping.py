"""
Scopes as they are typed: ranges, what they cover, and what was perhaps meant.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from kafka import TopicPartition

from safeconsumer.cli.errors import CommandError
from safeconsumer.group import judging, patterns, wire
from safeconsumer.group.operator import Operator
from safeconsumer.group.picture import Picture
from safeconsumer.holds.scope import Everything, Scope

# Each is a hold of its own, and a record.
_MOST = 1000
_RANGES = re.compile(r"([^:]+):(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


def scopes_of(texts: Iterable[str], group: str) -> tuple[Scope, ...]:
    """
    Read scopes, of which ``orders:0-2,5`` are four.

    Raises:
        CommandError: a range is no good, or the group's name is not.
        ScopeSyntaxError: one is no scope.
        MissingExtraError: google-re2 is missing, and one is a pattern.
    """
    if not wire.is_group(group):
        message = f"a group must be printable text of 1 to 1024 characters: {group!r}"
        raise CommandError(message)
    every = (one for text in texts for one in _expanded(text))
    return tuple(map(patterns.parse, dict.fromkeys(every)))


def _expanded(text: str) -> Iterator[str]:
    found = _RANGES.fullmatch(text)
    if text.startswith("re:") or found is None or text.rpartition(":")[2].isdigit():
        yield text
        return
    topic, several = found.groups()
    for part in several.split(","):
        first, dash, last = part.partition("-")
        end = int(last) if dash else int(first)
        if not int(first) <= end < int(first) + _MOST:
            message = (
                f"{text[:60]!r}: a range goes up, over {_MOST} partitions at most; "
                "name the topic for all of it"
            )
            raise CommandError(message)
        yield from (f"{topic}:{number}" for number in range(int(first), end + 1))


def partitions_of(picture: Picture) -> tuple[TopicPartition, ...]:
    """
    Return what a group owns or has committed for, in the middle of a rebalance too.
    """
    # Then only the members tell what they own.
    reported = judging.assigned(picture.reports)
    return tuple(sorted({*picture.facts.partitions, *reported}))


def covered(
    scopes: Iterable[judging.Covering], partitions: Iterable[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """
    Return those of the partitions that a scope covers.
    """
    scopes = tuple(scopes)
    return tuple(tp for tp in partitions if any(one.covers(tp) for one in scopes))


def refuse_nothing(
    operator: Operator, picture: Picture, scopes: Sequence[Scope]
) -> None:
    """
    Return if each scope covers something that the group consumes.

    ``@all`` is no typing error, whatever it covers.

    Raises:
        CommandError: one covers nothing; names what was perhaps meant.
    """
    here = partitions_of(picture)
    empty = [
        one
        for one in scopes
        if not isinstance(one, Everything) and not covered([one], here)
    ]
    if not empty:
        return
    known = operator.topics()
    said = "; ".join(
        f"{one} covers nothing that {picture.group} consumes"
        f"{_hint(str(one), here, known)}"
        for one in empty[:5]
    )
    message = f"{said} (what is for later needs --future)"
    raise CommandError(message)


def refuse_unknown(picture: Picture) -> None:
    """
    Return if there is anything of the group.

    Raises:
        CommandError: there is no such group, and no hold for it.
    """
    if not picture.is_known:
        message = f"no group {picture.group!r} here, and no hold for it"
        raise CommandError(message)


def near_group(operator: Operator, group: str) -> str:
    """
    Return which existing group was perhaps meant, as the rest of a sentence.
    """
    names = [one["group_id"] for one in operator.admin.list_groups()]
    return _near(group, names)


def _hint(text: str, here: Iterable[TopicPartition], known: Sequence[str]) -> str:
    topic, _, _ = text.partition(":")
    own = {tp.topic for tp in here}
    if text.startswith("re:"):
        return f"; it consumes {_some(own)}"
    if topic in own:
        numbers = judging.partitions_text(tp for tp in here if tp.topic == topic)
        return f": it has {numbers}"
    if text == "all":
        return ": everything is @all"
    if topic in known:
        return f", though there is such a topic; it consumes {_some(own)}"
    near = _near(topic, own) or _near(topic, [*known, "@all"])
    return near or f"; it consumes {_some(own)}"


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""  # noqa: PLR2004 - a line's worth
    return (", ".join(shown[:5]) or "nothing") + more


def _near(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, dict.fromkeys(names), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""
