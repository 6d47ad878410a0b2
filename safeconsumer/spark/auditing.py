"""
Runs the audit on Spark: reads packs from Spark's file systems, judges in parallel.

The driver finds out which cases there are, and whose facts each needs, from a count of
facts by address and member, which also shows whether everything is there. Then each
fact goes to its cases, and each case is judged where its facts are, by the judge of the
plain command (:mod:`safeconsumer.audit.batched`).
"""

import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from safeconsumer.audit import batched, packs
from safeconsumer.audit.checker import Settings
from safeconsumer.audit.facts import Address, Told, docket, facts, written_to
from safeconsumer.audit.journal import Source
from safeconsumer.audit.packs import Known, address_of, is_about
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.report import Row
from safeconsumer.errors import JournalError, MissingExtraError, SparkSetupError
from safeconsumer.spark.platforms import is_of_spark

_TYPES = {
    "name": "string",
    "string": "string",
    "int64": "bigint",
    "float64": "double",
}

# The modules that judging needs in an executor, besides pyarrow.
_SHIPPED = ("safeconsumer", "attr", "attrs")


class SparkPacks:
    """
    Packs that a Spark session can read, by any of its paths.

    Args:
        spark: the session, set up for its file systems.
        folders: the packs, such as ``s3a://bucket/pack``. A path without a scheme is on
            the session's default file system.

    Raises:
        JournalError: one is not a pack, cannot be read, or is incomplete.
        SparkSetupError: the session cannot read there.
    """

    def __init__(self, spark: Any, folders: Sequence[str]) -> None:  # noqa: ANN401 - pyspark is optional
        self._spark = spark
        self._folders = [folder.rstrip("/") or folder for folder in folders]
        self._known = packs.newest(self._journals())
        self._facts = self._read(packs.FACTS, packs.COLUMNS)
        self._addresses = self._counted()

    def __len__(self) -> int:
        """How many journals there are."""
        return len(self._known)

    def partitions(self) -> set[TopicPartition]:
        """Return every partition that the journals name."""
        named = {(one.topic, one.partition) for one in self._addresses}
        return {tp for tp in named if tp[0]}

    def about(self, tp: TopicPartition) -> Sequence[Source]:
        """Return the journals in the driver, with their entries about one partition."""
        functions = import_module("pyspark.sql.functions")
        wanted = {
            packs.address_text(one) for one in self._addresses if is_about(one, tp)
        }
        own = self._facts.filter(functions.col("address").isin(*wanted))
        with _translated(self._folders):
            return packs.journals_of(self._told(own), tp, self._known)

    def _told(self, own: Any) -> Told:  # noqa: ANN401 - pyspark is optional
        valid = {(one.member, one.run) for one in self._known.values()}
        for row in own.select(*packs.COLUMNS).toLocalIterator():
            if (row.member, row.run) in valid:
                yield address_of(row.address), packs.fact_of(self._folders[0], row[1:])

    def judged(
        self, settings: Settings, more: Sequence[Source] = ()
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """
        Return one row per check and case, and why some could not be judged.

        Args:
            settings: the assumptions.
            more: journals that the driver has.

        Raises:
            MissingExtraError: pandas or pyarrow is missing, which Spark needs.
            SparkSetupError: an executor lacks what judging needs.
        """
        told = self._facts
        addresses = set(self._addresses)
        runs = [(one.member, one.run) for one in self._known.values()]
        for journal in more:
            extra, own = self._made(journal)
            told, addresses = told.unionByName(extra), addresses | own
            runs.append((journal.member, ""))
        needs = docket(addresses)
        cases = tuple(needs)
        if not cases:
            return (), ()
        goes = [
            (packs.address_text(address), number)
            for number, needed in enumerate(needs.values())
            for address in needed
        ]
        sent = self._sent(told, runs, goes, len(cases))
        judging = partial(
            batched.judged,
            cases=cases,
            settings=settings,
            written=written_to(addresses),
        )
        with _translated(self._folders):
            answers = sent.mapInArrow(judging, "rows string, trouble string").collect()
        rows = [row for one in answers for row in batched.rows_in(one.rows or "[]")]
        places = {case: number for number, case in enumerate(cases)}
        rows.sort(key=lambda row: places[Address(row.group, row.topic, row.partition)])
        return tuple(rows), tuple(sorted(one.trouble for one in answers if one.trouble))

    # ------------------------------------------------------------ inside

    def _sent(
        self,
        told: Any,  # noqa: ANN401 - pyspark is optional
        runs: Sequence[Any],
        goes: Sequence[Any],
        cases: int,
    ) -> Any:  # noqa: ANN401 - pyspark is optional
        """Return the facts that count, each as often as it is needed, in order."""
        spark = self._spark
        broadcast = import_module("pyspark.sql.functions").broadcast
        valid = broadcast(spark.createDataFrame(runs, "member string, run string"))
        to = broadcast(spark.createDataFrame(goes, "address string, case int"))
        sent = told.join(valid, ["member", "run"]).join(to, "address")
        parallel = min(cases, 4 * spark.sparkContext.defaultParallelism)
        sent = sent.repartition(parallel, "case").sortWithinPartitions(
            "case", "member", "seq"
        )
        return sent.select(*batched.COLUMNS)

    def _journals(self) -> Iterator[Known]:
        names = list(packs.OF_JOURNALS)[1:]
        index = self._read(packs.JOURNALS, packs.OF_JOURNALS)
        with _translated(self._folders):
            found = index.collect()
        for row in found:
            packs.check_version(", ".join(self._folders), row.pack)
            yield Known(**{name: row[name] for name in names})

    def _counted(self) -> frozenset[Address]:
        with _translated(self._folders):
            counts = self._facts.groupBy("address", "member", "run").count().collect()
        found: Counter[tuple[str, str]] = Counter()
        for row in counts:
            found[row.member, row.run] += row["count"]
        for trouble in packs.missing(self._known, found):
            message = f"{', '.join(self._folders)}: {trouble}"
            raise JournalError(message)
        valid = {(one.member, one.run) for one in self._known.values()}
        return frozenset(
            address_of(row.address) for row in counts if (row.member, row.run) in valid
        )

    def _read(self, name: str, columns: Mapping[str, str]) -> Any:  # noqa: ANN401 - pyspark is optional
        reader = self._spark.read.schema(_schema(columns))
        reader = reader.option("recursiveFileLookup", "true")
        with _translated(self._folders):
            return reader.parquet(*(f"{one}/{name}" for one in self._folders))

    def _made(self, journal: Source) -> tuple[Any, set[Address]]:
        rows, own = [], set()
        for seq, (address, fact) in enumerate(facts(journal)):
            own.add(address)
            rows.append(packs.row_of(address, fact, "", seq))
        made = self._spark.createDataFrame(rows, _schema(packs.COLUMNS))
        return made, own


def _schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in columns.items())


# ---------------------------------------------------------------- executors


@contextmanager
def shipped(spark: Any) -> Iterator[None]:  # noqa: ANN401 - pyspark is optional
    """
    Send this package's code to the executors, so that they need not have it installed.

    The executors have this version first in their path, for as long as the session
    lasts; they need pyarrow. Those of a local session have it anyway.
    """
    if re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master):
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "safeconsumer-judge.zip")
        archive_judge(archive)
        spark.sparkContext.addPyFile(str(archive))
        yield


def archive_judge(path: Path) -> None:
    """Write a zip of the modules that judging needs in an executor, besides pyarrow."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in _SHIPPED:
            root = Path(str(import_module(name).__file__)).parent
            for module in sorted(root.rglob("*.py")):
                file.write(module, Path(name, module.relative_to(root)))


_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
_MISSING_SYSTEM = re.compile(
    r"Class (\S+FileSystem) not found|No FileSystem for scheme \"(\w+)\""
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
        raise _said(named, str(error)) from error


def _said(named: str, text: str) -> Exception:
    module = _MISSING_MODULE.search(text)
    if module is not None:
        return SparkSetupError(
            f"an executor has no {module[1]}: install it where executors find it, or "
            "send it along (safeconsumer.spark.auditing.shipped sends everything but "
            "pyarrow; --py-files, --archives)"
        )
    system = _MISSING_SYSTEM.search(text)
    if system is not None:
        return SparkSetupError(
            f"{named}: Spark has no {system[1] or f'filesystem for {system[2]}:'}; "
            "give it the jars, such as org.apache.hadoop:hadoop-aws for s3a: "
            "(spark.jars.packages)"
        )
    if "PATH_NOT_FOUND" in text or "UNABLE_TO_INFER_SCHEMA" in text:
        return JournalError(
            f"{named}: no pack is there; safeconsumer audit JOURNALS --pack makes one"
        )
    first = next(
        (line for line in text.splitlines() if line.strip()), "no reason given"
    )
    return JournalError(f"{named} cannot be read: {first.strip()[:500]}")
