"""Creates SQL views of delivery journals: deliveries, ownerships, holds, commits."""

import os
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from safeconsumer.audit.results import Settings
from safeconsumer.spark.auditing import facts_of, findings
from safeconsumer.spark.reading import Frame

_OF_PARTITION = ("`group`", "topic", "partition", "member")


@frozen
class _View:
    # A view: the kinds of facts that it contains, their fields, and the view's columns.
    kinds: Sequence[str]
    fields: str
    columns: Sequence[str]

    def of(self, facts: Frame) -> Frame:
        """Return the view's rows."""
        parsed = f"from_json(fact, 'n bigint, at double, {self.fields}') as one"
        own = facts.where(facts.kind.isin(*self.kinds)).selectExpr("*", parsed)
        about = own.selectExpr(*_OF_PARTITION, "place", "kind", "one.*")
        if "released" in self.kinds:
            about = about.selectExpr("*", _OVER).where("kind = 'owned'")
        return about.selectExpr(*self.columns)


# An ownership ends when the same member next gains or releases the same partition.
_OVER = """
    lead(if(kind = 'released', struct(at, is_lost, 'revoked' as revoked), null)) over (
        partition by `group`, topic, partition, member order by place) as over
"""

_VIEWS = {
    "deliveries": _View(
        ["delivered"],
        "first bigint, last bigint, count bigint, gaps array<array<bigint>>, "
        "start bigint, next bigint, asked double, written double, created double, "
        "is_peek boolean",
        [
            *(*_OF_PARTITION, "n", "at", "first", "last", "count", "gaps"),
            *("start as `from`", "next", "asked", "written", "created", "is_peek"),
        ],
    ),
    "ownerships": _View(
        ["owned", "released"],
        "generation bigint, topic_id string, is_lost boolean",
        [
            *(*_OF_PARTITION, "generation", "topic_id", "n", "at as since"),
            *("over.at as until", "if(over.is_lost, 'lost', over.revoked) as end"),
        ],
    ),
    "holds": _View(
        ["own_hold"],
        "scope string, owner string, lifetime string, expires double, until double, "
        "how string",
        [
            *("`group`", "member", "scope", "owner", "lifetime", "expires", "n"),
            *("at as since", "until", "how as end"),
        ],
    ),
    "commits": _View(
        ["committed"],
        "asked bigint, called double, answered double, offset bigint, is_done boolean",
        [
            *(*_OF_PARTITION, "coalesce(asked, n) as n", "called as at", "offset"),
            *("answered", "if(answered is null, null, is_done) as ok"),
        ],
    ),
}


def views(
    spark: Any,  # noqa: ANN401 - pyspark is optional
    path: str,
    settings: Settings | None = None,
    *,
    history: str | os.PathLike[str] | None = None,
) -> None:
    """
    Create SQL views: deliveries, ownerships, holds, commits and findings.

    The views are temporary views of the session, and each query reads the journals
    again. The view ``findings`` has the judge's verdicts, with the columns of
    :func:`~safeconsumer.spark.findings`. The other views contain facts from the
    journals: ``since`` and ``until`` are the times of start and end (``until`` is null
    if the journal does not contain the end), and ``end`` says how it ended.

    Args:
        spark: the session.
        path: as for :func:`~safeconsumer.spark.journals`.
        settings: the judge's settings.
        history: as for :func:`~safeconsumer.spark.findings`.

    Raises:
        JournalError: there is no journal at the path, or a journal or the history
            cannot be read.
        SparkSetupError: the session cannot read the path.
    """
    found = findings(spark, path, settings, history=history)
    found.createOrReplaceTempView("findings")
    facts = facts_of(spark, [path])
    for name, view in _VIEWS.items():
        view.of(facts).createOrReplaceTempView(name)
