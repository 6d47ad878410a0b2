"""Makes SQL views of delivery journals: what was delivered, owned, held and committed."""

import os
from typing import Any

from safeconsumer.audit.results import Settings
from safeconsumer.spark.auditing import facts_of, findings

_FACTS = "journal_facts"
_OF_PARTITION = "`group`, topic, partition, member"

# Of each view the kinds of facts, their columns that it needs, and what it shows.
_VIEWS = {
    "deliveries": (
        "'came'",
        "first bigint, last bigint, count bigint, gaps array<array<bigint>>, "
        "start bigint, next bigint, asked double, written double, created double, "
        "is_peek boolean",
        f"{_OF_PARTITION}, n, at, first, last, count, gaps, start as `from`, next, asked, "
        "written, created, is_peek",
    ),
    "ownerships": (
        "'owned', 'left'",
        "generation bigint, topic_id string, is_lost boolean",
        f"{_OF_PARTITION}, generation, topic_id, n, at as since, over.at as until, "
        "if(over.is_lost, 'lost', if(over is null, null, 'revoked')) as end",
    ),
    "holds": (
        "'held'",
        "scope string, owner string, lifetime string, expires double, until double, "
        "how string",
        "`group`, member, scope, owner, lifetime, expires, n, at as since, until, "
        "how as end",
    ),
    "commits": (
        "'committed'",
        "asked bigint, called double, answered double, offset bigint, is_done boolean",
        f"{_OF_PARTITION}, coalesce(asked, n) as n, called as at, offset, answered, "
        "if(answered is null, null, is_done) as ok",
    ),
}

# An ownership ends with the next fact of its member about one of its partition.
_OVER = """
    lead(if(kind = 'left', struct(at, is_lost), null)) over (
        partition by `group`, topic, partition, member order by place) as over
"""


def _sql(kinds: str, columns: str, shown: str) -> str:
    parsed = f"from_json(fact, 'n bigint, at double, {columns}') as one"
    rows = f"select *, {parsed} from {_FACTS} where kind in ({kinds})"
    own = f"select `group`, topic, partition, member, place, kind, one.* from ({rows})"
    if "left" not in kinds:
        return f"select {shown} from ({own})"
    both = f"select *, {_OVER} from ({own})"
    return f"select {shown} from ({both}) where kind = 'owned'"


def views(
    spark: Any,  # noqa: ANN401 - pyspark is optional
    path: str,
    settings: Settings | None = None,
    *,
    history: str | os.PathLike[str] | None = None,
) -> None:
    """
    Make the views ``deliveries``, ``ownerships``, ``holds``, ``commits`` and ``findings``.

    They are temporary views of the session, and read the journals each time when they
    are asked. ``findings`` has the columns of
    :func:`~safeconsumer.spark.findings`, and is what the judge says. The others show
    what members wrote: ``since`` and ``until`` are when something began and ended, null
    if a journal has no end of it, and ``end`` says how it ended.

    Args:
        spark: the session.
        path: as for :func:`~safeconsumer.spark.journals`.
        settings: the assumptions of the judge.
        history: as for :func:`~safeconsumer.spark.findings`.

    Raises:
        JournalError: there is no journal at the path, or it cannot be read, or the
            history cannot.
        SparkSetupError: the session cannot read there.
    """
    found = findings(spark, path, settings, history=history)
    found.createOrReplaceTempView("findings")
    facts_of(spark, [path]).createOrReplaceTempView(_FACTS)
    for name, parts in _VIEWS.items():
        spark.sql(_sql(*parts)).createOrReplaceTempView(name)
