"""
The audit as a Spark job: one task per journal, then one judgement per partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from safeconsumer.audit.checker import Settings, judge
from safeconsumer.audit.facts import Address, Fact, docket, facts
from safeconsumer.audit.journal import Journal
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.stream import opened
from safeconsumer.errors import JournalError

Item = tuple[Address | None, Fact | str]


def audit(
    spark: Any,  # noqa: ANN401 - pyspark is optional
    paths: Sequence[Path],
    settings: Settings,
    more: Sequence[Journal] = (),
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """
    Judge journals that every executor can read at these paths.

    Facts travel, never records. The judgement is that of
    :func:`safeconsumer.audit.checker.judge`. ``more`` are journals that are here
    already.

    Returns:
        One row per check and partition, and why some journals could not be read.
    """
    context = spark.sparkContext
    slices = max(1, min(len(paths), 4 * context.defaultParallelism))
    found = context.parallelize([str(path) for path in paths], slices)
    found = found.flatMap(_told)
    known = [item for journal in more for item in facts(journal)]
    found = found.union(context.parallelize(known, 1)).cache()
    troubles = found.filter(_is_trouble).values().collect()
    told = found.filter(_is_fact)
    needs = docket(told.keys().distinct().collect())
    cases: dict[Address, list[Address]] = {}
    for case, needed in needs.items():
        for address in needed:
            cases.setdefault(address, []).append(case)
    rows = (
        told.flatMap(partial(_to_cases, cases=cases))
        .groupByKey()
        .flatMap(partial(_judged, settings=settings))
        .collect()
    )
    order = {row: number for number, row in enumerate(rows)}
    rows.sort(
        key=lambda row: (row.group, row.topic, row.partition, order[row]),
    )
    return tuple(rows), tuple(sorted(troubles))


def _told(path: str) -> Iterator[Item]:
    try:
        yield from facts(opened(Path(path)))
    except JournalError as error:
        yield None, str(error)


def _to_cases(
    item: tuple[Address, Fact], cases: Mapping[Address, Sequence[Address]]
) -> Iterator[tuple[Address, Fact]]:
    address, fact = item
    for case in cases[address]:
        yield case, fact


def _judged(item: tuple[Address, Any], settings: Settings) -> tuple[Row, ...]:
    case, told = item
    found = sorted(told, key=lambda fact: (fact.member, fact.number))
    return rows_of(judge(case, found, settings))


def _is_trouble(item: Item) -> bool:
    return item[0] is None


def _is_fact(item: Item) -> bool:
    return item[0] is not None
