"""Makes SQL views of delivery journals: what was delivered, owned, held and committed."""

import os
from typing import Any

from safeconsumer.audit.results import Settings
from safeconsumer.spark.auditing import findings
from safeconsumer.spark.reading import journals

_ENTRIES = "journal_entries"

_DELIVERIES = """
    select `group`, topic, partition, member, n, at, first, last, count, gaps,
        `from`, next, asked, written, created, coalesce(peek, false) as is_peek
    from {entries} where e = 'deliver'
"""

# An ownership ends with the next entry of its member about its partition, if there is one.
_OWNERSHIPS = """
    with moves as (
        select `group`, member, n, at, e, generation, topics, tp,
            lead(struct(n, at, e)) over (partition by `group`, member, tp order by n)
                as ended
        from {entries} lateral view explode(partitions) as tp
        where e in ('assigned', 'revoked', 'lost')
    )
    select `group`, regexp_extract(tp, '^(.*):[0-9]+$', 1) as topic,
        cast(regexp_extract(tp, ':([0-9]+)$', 1) as int) as partition,
        member, generation,
        try_element_at(topics, regexp_extract(tp, '^(.*):[0-9]+$', 1)) as topic_id,
        n, at as since, ended.at as until, ended.e as end
    from moves where e = 'assigned'
"""

# A hold that is placed again while it stands goes on: only the first of several in a row
# begins one. An application's hold is in force once its call has returned.
_HOLDS = """
    with calls as (
        select `group`, member, n, at, op = 'pause' as is_placed, one as scope,
            owner, lifetime, until as expires, op as how
        from {entries} lateral view explode(scopes) as one
        where e = 'return' and op in ('pause', 'resume') and coalesce(ok, true)
    ),
    changes as (
        select `group`, member, n, at, is_placed, scope, owner, lifetime, expires, how,
            lag(is_placed, 1, false) over known as was_placed
        from (
            select * from calls
            union all
            select `group`, member, n, coalesce(since, at), e = 'hold', scope, owner,
                null, null, coalesce(why, e)
            from {entries} where e in ('hold', 'lift')
        ) window known as (partition by `group`, member, scope, owner order by n)
    ),
    turns as (
        select *, lead(struct(at, how)) over (
            partition by `group`, member, scope, owner order by n) as ended
        from changes where is_placed <> was_placed
    )
    select `group`, member, scope, owner, lifetime, expires, n, at as since,
        ended.at as until, ended.how as end
    from turns where is_placed
"""

_COMMITS = """
    with calls as (
        select `group`, member, n, at, id, offsets from {entries}
        where e = 'call' and op = 'commit'
    ),
    answers as (
        select `group`, member, id, at, coalesce(ok, true) as ok from {entries}
        where e = 'return' and op = 'commit'
    )
    select calls.`group`, regexp_extract(tp, '^(.*):[0-9]+$', 1) as topic,
        cast(regexp_extract(tp, ':([0-9]+)$', 1) as int) as partition,
        calls.member, calls.n, calls.at, stood as offset, answers.at as answered, answers.ok
    from calls left join answers
        on calls.`group` = answers.`group` and calls.member = answers.member
        and calls.id = answers.id
    lateral view explode(offsets) as tp, stood
"""

_SQL = {
    "deliveries": _DELIVERIES,
    "ownerships": _OWNERSHIPS,
    "holds": _HOLDS,
    "commits": _COMMITS,
}


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
    journals(spark, path).createOrReplaceTempView(_ENTRIES)
    for name, text in _SQL.items():
        spark.sql(text.format(entries=_ENTRIES)).createOrReplaceTempView(name)
