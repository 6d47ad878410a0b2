"""
Runs the audit of raw journals on Spark, first in parallel by process, then by case.

First, each task turns the journals of one process into facts, with the same code as the
plain command. A case is one group and partition. Then each fact is sent to the cases
that need it, and each task judges one case, with the same judge as the plain command
(:mod:`safeconsumer.audit.distributed`).
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Self

from attrs import evolve

from safeconsumer.audit import distributed
from safeconsumer.audit.control import history_in
from safeconsumer.audit.distributed import FACTS, NEEDS, REPORT
from safeconsumer.audit.entries import End, Entry, Other, decoded
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.report import Row
from safeconsumer.audit.results import Settings
from safeconsumer.audit.stream import Source
from safeconsumer.errors.base import JournalError, MissingExtraError, SparkSetupError
from safeconsumer.spark.platforms import is_of_spark
from safeconsumer.spark.reading import Frame, lines, listed

_TYPES = {"string": "string", "int32": "int", "int64": "bigint", "bool_": "boolean"}

FINDINGS = (
    "`group` string, `check` string, topic string, partition int, violations bigint, "
    "offset bigint, member string, evidence string, basis string, unjudged string, "
    "entry bigint, at double, unrecorded bigint"
)
"""
The columns of :func:`findings`, as Spark's DDL; :class:`~safeconsumer.audit.report.Row`
describes them.
"""


def findings(
    spark: Any,  # noqa: ANN401 - pyspark is optional
    path: str,
    settings: Settings | None = None,
    *,
    history: str | os.PathLike[str] | None = None,
) -> Frame:
    """
    Return the verdicts on the journals at a path, with the columns of ``FINDINGS``.

    Each check has a row for each group and partition, with the number of violations and
    the first violation. If a check could not be judged, ``unjudged`` has the reason. An
    unreadable journal has a row whose ``check`` is empty, with the reason in
    ``unjudged``; in that case no other row proves that a check passed.

    Args:
        spark: the session; executors need ``safeconsumer[audit]`` and pyarrow.
        path: as for :func:`~safeconsumer.spark.journals`.
        settings: the judge's settings.
        history: a local file with the output of ``safeconsumer history -o json``, which
            has the times of the groups' holds; without a history these holds are not
            judged.

    Raises:
        JournalError: there is no journal at the path, or a journal or the history
            cannot be read.
        SparkSetupError: the session cannot read the path, or an executor lacks a
            package that the judge needs.
    """
    assumed = settings or Settings()
    if history is not None:
        assumed = evolve(assumed, control=history_in(history))
    with _translated([path]):
        if not listed(spark, path):
            message = f"there is no journal in {path}"
            raise JournalError(message)
        _try(spark)
        answers = _answers(spark, facts_of(spark, [path]), assumed)
        rows = f"explode(from_json(rows, 'array<struct<{FINDINGS}>>')) as row"
        return answers.selectExpr(rows).select("row.*")


class SparkJournals:
    """
    Journals at any path that a Spark session can read.

    The journals are read only once: the executors keep the facts on their disks for the
    duration of a ``with`` block.

    Args:
        spark: the session, configured for the file systems of the paths.
        paths: files, folders and globs, such as ``s3a://bucket/journals``. A path
            without a scheme is on the session's default file system.

    Raises:
        JournalError: a path does not exist, or cannot be read.
        SparkSetupError: the session cannot read the paths.
    """

    def __init__(self, spark: Any, paths: Sequence[str]) -> None:  # noqa: ANN401 - pyspark is optional
        self._spark = spark
        self._paths = [path.rstrip("/") or path for path in dict.fromkeys(paths)]
        with _translated(self._paths):
            there = {path: listed(spark, path) for path in self._paths}
            self._empty = [
                f"there is no journal in {path}" for path in there if not there[path]
            ]
            files = [one for several in there.values() for one in several]
            # A file that several paths include is read once.
            self._read = (
                self._paths if len(files) == len({*files}) else sorted({*files})
            )
            self._facts = facts_of(spark, self._read).persist(_on_disk())

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the space on the executors' disks."""
        self._facts.unpersist()

    def __len__(self) -> int:
        """Return the number of journals that can be read, at least in part."""
        return sum(int(one["opened"]) for one in self._reports)

    def partitions(self) -> set[TopicPartition]:
        """Return every partition that the journals name."""
        with _translated(self._paths):
            found = self._facts.select("address").distinct().collect()
        named = [json.loads(row.address)[1:] for row in found if row.address != REPORT]
        return {(topic, number) for topic, number in named if topic}

    def near(self, member: str, first: int, last: int) -> Sequence[Entry | Other]:
        """Return a member's entries from a first to a last number."""
        column = import_module("pyspark.sql.functions").col
        texts = lines(self._spark, self._read).where(column("head.member") == member)
        own = texts.selectExpr(
            "text", "cast(get_json_object(text, '$.n') as bigint) as n"
        )
        with _translated(self._paths):
            rows = own.where(f"n between {first} and {last}").distinct().collect()
        text = "".join(f"{row.text}\n" for row in sorted(rows, key=lambda row: row.n))
        found = decoded(f"the journal of {member}", first, text.encode())
        return [entry for entry in found if not isinstance(entry, End)]

    def judged(
        self, settings: Settings, more: Sequence[Source] = ()
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """
        Return one row per check and case, and the reasons for unreadable journals.

        Args:
            settings: the judge's settings.
            more: further journals, on the driver.

        Raises:
            JournalError: the journals cannot be read.
            MissingExtraError: pandas or pyarrow, which Spark needs, is missing.
            SparkSetupError: an executor lacks a package that the judge needs.
        """
        troubles = list(self._empty)
        facts = self._facts
        for journal in more:
            own = list(distributed.rows_about(journal, troubles.append))
            facts = facts.unionByName(self._spark.createDataFrame(own, _ddl(FACTS)))
        answers = _answers(self._spark, facts, settings)
        with _translated(self._paths):
            found = answers.where("rows <> '[]'").select("rows").collect()
        rows = [Row(**row) for one in found for row in json.loads(one.rows)]
        rows.sort(key=lambda row: (row.group, row.topic, row.partition))
        # A broken entry is reported with the same reason in the rows of all its
        # partitions.
        troubles += sorted({row.unjudged for row in rows if not row.check})
        return tuple(row for row in rows if row.check), tuple(troubles)

    @cached_property
    def _reports(self) -> list[Mapping[str, Any]]:
        with _translated(self._paths):
            found = self._facts.where(f"address = '{REPORT}'").select("fact").collect()
        return [json.loads(row.fact) for row in found]


def facts_of(spark: Any, paths: Sequence[str]) -> Frame:  # noqa: ANN401 - pyspark is optional
    """Return the facts of all journals; one task creates the facts of one process."""
    process = (
        "if(head.member is null, file, to_json(struct(head.member, head.`group`)))"
    )
    texts = lines(spark, paths).selectExpr(
        f"{process} as process", "file", "size", "block", "line", "text"
    )
    texts = texts.repartition(_tasks(spark), "process")
    texts = texts.sortWithinPartitions("process", "file", "block", "line")
    texts = texts.selectExpr("process", "file", "size", "cast(text as binary) as line")
    return texts.mapInArrow(distributed.take_apart, _ddl(FACTS))


def _answers(spark: Any, facts: Frame, settings: Settings) -> Frame:  # noqa: ANN401 - pyspark is optional
    """Return the results for all cases, each of which is judged by a single task."""
    broadcast = import_module("pyspark.sql.functions").broadcast
    addresses = facts.select("address").distinct().coalesce(1)
    needs = addresses.mapInArrow(distributed.tell_needs, _ddl(NEEDS))
    sent = facts.join(broadcast(needs), "address").repartition(_tasks(spark), "case")
    sent = sent.sortWithinPartitions("case", "member", "place")
    judging = partial(distributed.judge_cases, settings=settings)
    sent = sent.select("case", "is_written", "address", "member", "fact")
    return sent.mapInArrow(judging, _ddl(distributed.ANSWERS))


def _try(spark: Any) -> None:  # noqa: ANN401 - pyspark is optional
    # Without this check, a missing package would cause a query to fail with Java's
    # stack trace.
    nothing = spark.range(1).coalesce(1).selectExpr(f"'{REPORT}' as address")
    nothing.mapInArrow(distributed.tell_needs, _ddl(NEEDS)).collect()


def _tasks(spark: Any) -> int:  # noqa: ANN401 - pyspark is optional
    # Create several tasks for each core, because some tasks take longer than others.
    return 4 * int(spark.sparkContext.defaultParallelism)


def _on_disk() -> Any:  # noqa: ANN401 - pyspark's
    return import_module("pyspark").StorageLevel.DISK_ONLY


def _ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in columns.items())


# ---------------------------------------------------------------- errors

_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
_MISSING_SYSTEM = re.compile(
    r"Class (\S+FileSystem) not found|No FileSystem for scheme \"(\w+)\""
)

_OTHER_PYTHON = re.compile(r"Python in worker has different version.*driver:? [\d.]+\d")
_PYTHON = (
    "Executors run the Python that PYSPARK_PYTHON named when the session began, or "
    "else PATH's python3; on one machine it should be sys.executable"
)


@contextmanager
def _translated(folders: Sequence[str]) -> Iterator[None]:
    named = ", ".join(folders)
    try:
        yield
    except ImportError as error:
        message = (
            "judging on Spark needs pandas and pyarrow beside pyspark: "
            "pip install 'safeconsumer[spark]'"
        )
        raise MissingExtraError(message) from error
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise _error_of(named, str(error)) from error


def _error_of(named: str, text: str) -> Exception:
    module = _MISSING_MODULE.search(text)
    if module is not None:
        return SparkSetupError(
            f"an executor has no {module[1]}: install it where executors find it, or "
            "send an environment along that has safeconsumer[audit] and pyarrow "
            f"(--archives). {_PYTHON}"
        )
    versions = _OTHER_PYTHON.search(text)
    if versions is not None:
        return SparkSetupError(f"{versions[0]}. {_PYTHON}")
    system = _MISSING_SYSTEM.search(text)
    if system is not None:
        return SparkSetupError(
            f"{named}: Spark has no {system[1] or f'filesystem for {system[2]}:'}; "
            "give it the jars, such as org.apache.hadoop:hadoop-aws for s3a: "
            "(spark.jars.packages)"
        )
    if "PATH_NOT_FOUND" in text:
        return JournalError(f"no such file or folder: {named}")
    first = next(
        (line for line in text.splitlines() if line.strip()), "no reason given"
    )
    return JournalError(f"{named} cannot be read: {first.strip()[:500]}")
