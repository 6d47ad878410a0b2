"""
What clients do otherwise on purpose, as their documentation says.

Such a cell of the table is marked as a choice, not as a fault: that records come of
what was paused, never that none come after a resume. It is one only where the
client's own documentation says so, or that of the client whose design it follows.
"""

from attrs import frozen

from safeconsumer.testing.cases.catalogue import Case
from tests.harness.conformance.clients import Client


@frozen(kw_only=True)
class Choice:
    """A documented way to differ, and where it is documented."""

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
        families=("safeconsumer",),
        cases=(
            "unsubscribed-and-back",
            "assigned-away-and-back",
            "given-up-with-a-fetch-in-flight",
        ),
        text=(
            "A plain pause of one partition ends where its consumer gives the partition "
            "up, as in kafka-python, so that a program that never resumes it does not "
            "stall. A strict one lasts until it is resumed."
        ),
        links=("https://issues.apache.org/jira/browse/KAFKA-13463",),
    ),
    Choice(
        families=_AFTER_JAVA,
        cases=(
            "moves-and-returns",
            "the-rest-beside-another-pause",
            "evicted-for-not-polling",
            "evicted-for-being-frozen",
            "unsubscribed-and-back",
            "another-topic-and-back",
            "assigned-away-and-back",
            "given-up-with-a-fetch-in-flight",
            "another-member-went-on-meanwhile",
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
            "still-paused-when-a-member-joins",
            "still-paused-when-a-member-dies",
            "still-paused-when-partitions-are-added",
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
    """Return the documented choice by which records may come in this case."""
    for choice in CHOICES:
        here = client.family in choice.families and one.name in choice.cases
        if here and not (choice.eager_only and client.protocol != "range"):
            return choice
    return None
