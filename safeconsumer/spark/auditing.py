"""
The audit as a Spark job: one task per journal, then one judgement per partition.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from safeconsumer.audit.checker import Digest, Settings, digests, judge
from safeconsumer.audit.journal import Journal
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.stream import opened
from safeconsumer.errors import JournalError
from safeconsumer.holds.scope import TopicPartition

Item = tuple[TopicPartition | None, Digest | str]


def audit(
    spark: Any,  # noqa: ANN401 - pyspark is optional
    paths: Sequence[Path],
    settings: Settings,
    more: Sequence[Journal] = (),
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """
    Judge journals that every executor can read at these paths.

    Only runs of records, ownerships, commits and findings travel, never records. The
    judgement is that of :func:`safeconsumer.audit.checker.judge`. ``more`` are journals
    that are here already.

    Returns:
        One row per check and partition, and why some journals could not be read.
    """
    context = spark.sparkContext
    slices = max(1, min(len(paths), 4 * context.defaultParallelism))
    found = context.parallelize([str(path) for path in paths], slices)
    found = found.flatMap(partial(_digested, settings=settings))
    known = [item for journal in more for item in digests(journal, settings)]
    found = found.union(context.parallelize(known, 1)).cache()
    troubles = found.filter(_is_trouble).values().collect()
    everywhere = found.filter(_is_everywhere).values().collect()
    rows = (
        found.filter(_is_about_one)
        .groupByKey()
        .flatMap(partial(_judged, everywhere=everywhere, settings=settings))
        .collect()
    )
    order = {row: number for number, row in enumerate(rows)}
    rows.sort(key=lambda row: (row.topic, row.partition, order[row]))
    return tuple(rows), tuple(sorted(troubles))


def _digested(path: str, settings: Settings) -> list[Item]:
    try:
        return list(digests(opened(Path(path)), settings))
    except JournalError as error:
        return [(None, str(error))]


def _judged(
    item: tuple[TopicPartition, Any], everywhere: Sequence[Digest], settings: Settings
) -> tuple[Row, ...]:
    tp, parts = item
    return rows_of(tp, judge(tp, (*parts, *everywhere), settings))


def _is_trouble(item: Item) -> bool:
    return isinstance(item[1], str)


def _is_everywhere(item: Item) -> bool:
    return item[0] is None and not isinstance(item[1], str)


def _is_about_one(item: Item) -> bool:
    return item[0] is not None
