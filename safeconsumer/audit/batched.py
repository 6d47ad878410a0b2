"""
Judges cases from batches of facts; Spark's executors run this module.

It needs only the judge, attrs and pyarrow.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import groupby
from operator import itemgetter
from typing import Any

from safeconsumer.audit.checker import Settings, judge
from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.errors import JournalError, SparkSetupError

# The columns of batches: the number of a case, and a fact.
COLUMNS = ("case", "member", "n", "at", "e", "fields", "called", "polls")

# The columns of answers: the report's rows of a case as JSON, or why there are none.
ANSWER = ("rows", "trouble")


def judged(
    batches: Iterable[Any], *, cases: Sequence[Address], settings: Settings
) -> Iterator[Any]:
    """
    Judge facts that are sorted by case, and within a case by member and number.

    Args:
        batches: Arrow's record batches with :data:`COLUMNS`.
        cases: the cases, in the order of their numbers.
        settings: the assumptions of the judge.

    Yields:
        A record batch with :data:`ANSWER` for each case.
    """
    arrow = import_module("pyarrow")
    told = (one for batch in batches for one in _facts(batch))
    for number, own in groupby(told, itemgetter(0)):
        answer = _answer(cases[number], (fact for _, fact in own), settings)
        columns = [arrow.array([one], arrow.string()) for one in answer]
        yield arrow.RecordBatch.from_arrays(columns, names=list(ANSWER))


def rows_in(text: str) -> list[Row]:
    """
    Return the rows of an answer.

    Raises:
        SparkSetupError: the executors have another version of this package.
    """
    try:
        return [Row(**row) for row in json.loads(text)]
    except TypeError as error:
        message = (
            "executors have another version of safeconsumer than the driver: send this "
            "one along (safeconsumer.spark.auditing.shipped)"
        )
        raise SparkSetupError(message) from error


def _facts(batch: Any) -> Iterator[tuple[int, Fact]]:  # noqa: ANN401 - pyarrow is untyped
    columns = (batch.column(name).to_pylist() for name in COLUMNS)
    for case, member, n, at, event, fields, called, polls in zip(*columns, strict=True):
        yield case, Fact(member, n, at, event, json.loads(fields), called, polls)


def _answer(
    case: Address, told: Iterable[Fact], settings: Settings
) -> tuple[str | None, str | None]:
    try:
        verdict = judge(case, told, settings)
    except JournalError as error:
        return None, str(error)
    return json.dumps([row.as_dict() for row in rows_of(verdict)]), None
