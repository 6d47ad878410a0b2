"""Lists the ACLs that operators and members need in Kafka."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import frozen

from safeconsumer.group.settings import Control

TOPIC, GROUP = "topic", "group"
REPLAYING = "safeconsumer-replay-"
"""
The prefix of the groups whose offsets show which dead letters were replayed.
"""
_ANY = "*"
# The type and name of a resource, and the allowed operations on it.
_Right = tuple[str, str, tuple[str, ...]]


@frozen(kw_only=True)
class Grant:
    """
    The permission of one principal to use one resource.

    Attributes:
        principal: ``User:alice``.
        kind: the type of the resource, ``topic`` or ``group``.
        name: the name of the resource; a trailing ``*`` means all resources with that
            prefix.
        operations: Kafka's names of the allowed operations, such as ``Read``; ``Read``
            and ``Write`` imply ``Describe``.
    """

    principal: str
    kind: str
    name: str
    operations: tuple[str, ...]

    @property
    def is_prefix(self) -> bool:
        """Whether the grant covers all resources whose names start with a prefix."""
        return self.name.endswith(_ANY) and self.name != _ANY

    @property
    def pattern(self) -> str:
        """The name or prefix, as it is written in an ACL."""
        return self.name[:-1] if self.is_prefix else self.name

    def command(self) -> str:
        """Return the ``kafka-acls.sh`` command that creates the ACL."""
        operations = " ".join(f"--operation {one}" for one in self.operations)
        where = f"--{self.kind} {shlex.quote(self.pattern)}"
        prefix = " --resource-pattern-type prefixed" if self.is_prefix else ""
        return (
            "kafka-acls.sh --bootstrap-server ... --add --allow-principal "
            f"{shlex.quote(self.principal)} {operations} {where}{prefix}"
        )

    def document(self) -> dict[str, Any]:
        """Return the grant as plain JSON values."""
        return {
            "principal": self.principal,
            "resource_type": self.kind,
            "name": self.pattern,
            "pattern_type": "prefixed" if self.is_prefix else "literal",
            "operations": list(self.operations),
        }


def listing(settings: Control) -> str:
    """Return the ``kafka-acls.sh`` command that lists the ACLs for the control topics."""
    names = " ".join(f"--topic {shlex.quote(one)}" for one in settings.topics)
    # "match" also lists ACLs for prefixes and for *.
    return (
        f"kafka-acls.sh --bootstrap-server ... --list {names} "
        "--resource-pattern-type match"
    )


def grants(
    settings: Control,
    operators: Iterable[str],
    members: Iterable[str],
    groups: Sequence[str],
    topics: Sequence[str],
) -> Iterator[Grant]:
    """
    Yield exactly the permissions that operators and members need for holds and resets.

    Operators also need permission to commit the position of ``dead-letters replay``;
    ``topics`` must include the topics that it reads. Members already have all
    permissions for resets, because they are consumers.

    Args:
        settings: the names of the control topics.
        operators: the principals that place and lift holds.
        members: the principals of the consumers, which can already read their own
            topics.
        groups: the consumer groups that operators may see.
        topics: the topics of these groups.
    """
    given = [(who, _operators(settings, groups, topics)) for who in operators]
    given += [(who, _members(settings)) for who in members]
    for who, several in given:
        for kind, name, operations in several:
            yield Grant(principal=who, kind=kind, name=name, operations=operations)


def _operators(
    settings: Control, groups: Sequence[str], topics: Sequence[str]
) -> list[_Right]:
    found: list[_Right] = [
        (TOPIC, settings.holds_topic, ("Read", "Write", "DescribeConfigs"))
    ]
    if settings.status_topic is not None:
        found.append((TOPIC, settings.status_topic, ("Read",)))
    found += ((GROUP, name, ("Describe",)) for name in groups)
    # reset-offsets commits for a group that has no members.
    found += ((GROUP, name, ("Read",)) for name in groups)
    found += ((TOPIC, name, ("Read",)) for name in topics)
    found.append((GROUP, f"{REPLAYING}{_ANY}", ("Read",)))
    # Describe shows the partitions, the committed offsets, and the end offsets.
    # DescribeConfigs shows how long records are kept, which a dry run prints.
    found += ((TOPIC, name, ("Describe", "DescribeConfigs")) for name in topics)
    return found


def _members(settings: Control) -> list[_Right]:
    read: _Right = (TOPIC, settings.holds_topic, ("Read", "DescribeConfigs"))
    status = settings.status_topic
    return [read] if status is None else [read, (TOPIC, status, ("Write",))]
