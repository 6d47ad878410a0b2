"""
What clients do otherwise on purpose, as their documentation says.

Such a cell of the table is marked as a choice, not as a fault: that records come of
what was paused, never that none come after a resume. It is one only where the
client's own documentation says so, or that of the client whose design it follows.
"""

from attrs import frozen

from tests.conformance.clients import Client
from tests.conformance.registry import Case


@frozen(kw_only=True)
class Choice:
    """
    A documented way to differ, and where it is documented.
    """

    families: tuple[str, ...]
    eager_only: bool = False
    cases: tuple[str, ...]
    text: str
    links: tuple[str, ...]


_AFTER_JAVA = ("kafka-python", "aiokafka")
_JAVA_SAYS = (
    "https://github.com/apache/kafka/pull/11460",
    "https://github.com/apache/kafka/pull/22538",
)

CHOICES = (
    Choice(
        families=_AFTER_JAVA,
        cases=(
            "moves-and-returns",
            "did-not-poll-in-time",
            "frozen",
            "unsubscribed-and-back",
            "another-topic-and-back",
            "assigned-away-and-back",
            "topic-created-again",
        ),
        text=(
            "A pause ends when its partition is revoked. Documented for the Java "
            "client, whose design kafka-python and aiokafka follow; their own pages "
            "are silent."
        ),
        links=_JAVA_SAYS,
    ),
    Choice(
        families=_AFTER_JAVA,
        cases=(
            "kept-when-one-joins",
            "kept-when-one-dies",
            "kept-when-partitions-are-added",
        ),
        eager_only=True,
        text=(
            "The same, since an eager assignor revokes everything at each rebalance. "
            "kafka-python 3.0 does better than that."
        ),
        links=_JAVA_SAYS,
    ),
    Choice(
        families=_AFTER_JAVA,
        cases=("paused-before-each-poll",),
        text=(
            "What a poll() gains was not assigned when the loop paused, and flows; "
            "with an eager assignor that is everything. The ticket asked for another "
            "rule and its change was closed unmerged."
        ),
        links=(
            "https://issues.apache.org/jira/browse/KAFKA-13463",
            "https://github.com/apache/kafka/pull/11911",
        ),
    ),
)


def choice_of(client: Client, one: Case) -> Choice | None:
    """
    Return the documented choice by which records may come in this case.
    """
    for choice in CHOICES:
        here = client.family in choice.families and one.name in choice.cases
        if here and not (choice.eager_only and client.protocol != "range"):
            return choice
    return None
