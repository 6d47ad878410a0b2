"""Implements Spark's streaming reader; this module needs pyspark 4.2 and pyarrow."""

import importlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from safeconsumer.spark import offsets
from safeconsumer.spark.python import reading
from safeconsumer.spark.python.planner import Planner
from safeconsumer.spark.python.settings import Settings

_source: Any = importlib.import_module("pyspark.sql.datasource")
_streaming: Any = importlib.import_module("pyspark.sql.streaming.datasource")
_InputPartition: Any = _source.InputPartition
_StreamReader: Any = _source.DataSourceStreamReader
_SupportsAvailableNow: Any = _streaming.SupportsTriggerAvailableNow


class Task(_InputPartition):  # type: ignore[misc]  # pyspark's, which is not there for mypy
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: tuple[reading.Range, ...]) -> None:
        self.ranges = ranges


class Reader(_StreamReader, _SupportsAvailableNow):  # type: ignore[misc]  # as above
    """
    Plans in one of Spark's processes, and reads in others, which get a pickled copy.

    Spark keeps the planning process as long as the query runs, and ends it with a signal.

    Args:
        settings: the settings of the stream.
        schema: pyspark's schema of the stream's rows.
    """

    def __init__(self, settings: Settings, schema: Any) -> None:  # noqa: ANN401 - pyspark's
        self._settings = settings
        self._schema = schema
        self._made: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the planner, because its connections cannot be pickled."""
        return {**self.__dict__, "_made": None}

    # ------------------------------------------------------------ the planner

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            self._made = Planner(self._settings)
            if threading.current_thread() is threading.main_thread():
                # Spark ends this process with SIGTERM, without calling stop().
                signal.signal(signal.SIGTERM, _exit)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's, here and below
        """Return the offsets at which a stream without a checkpoint begins."""
        return _document(self._planner.initial())

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802 - pyspark's
        """Return the limit of a batch."""
        most = self._settings.max_offsets
        if most is None:
            return _streaming.ReadAllAvailable()
        return _streaming.ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the end offsets of a run with ``availableNow``."""
        self._planner.prepare()

    def latestOffset(self, start: Mapping[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ANN401, N802
        """Return the ends of the next batch."""
        most = limit.max_rows if isinstance(limit, _streaming.ReadMaxRows) else None
        return _document(self._planner.end(_offsets(start), most))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends of the topics at the last plan, held or not."""
        latest = self._planner.latest
        return None if latest is None else _document(latest)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[Task]:
        """Return the tasks of a batch."""
        planned = self._planner.tasks(_offsets(start), _offsets(end))
        return [Task(ranges) for ranges in planned]

    def commit(self, end: Mapping[str, Any]) -> None:
        """
        Do nothing, because the next plan proves that a batch has ended.

        Spark commits a batch only after it has planned the next batch, whose rows are
        about to be read. If the commit counted as the end of a batch, held partitions
        would be reported as quiet too early.
        """

    def stop(self) -> None:
        """Report that the stream has stopped, and close the connections."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    # ------------------------------------------------------------ an executor

    def read(self, partition: Task) -> Iterator[Any]:
        """Yield the rows of a task in Arrow batches."""
        columns = Columns(self._schema)
        for wanted in partition.ranges:
            for records in reading.read(self._settings, wanted):
                yield columns.batch(wanted, records)


class Columns:
    """
    Creates Arrow batches from records.

    Args:
        schema: pyspark's schema of the rows.
    """

    def __init__(self, schema: Any) -> None:  # noqa: ANN401 - pyspark's
        types: Any = importlib.import_module("pyspark.sql.pandas.types")
        self._arrow: Any = importlib.import_module("pyarrow")
        self._schema = types.to_arrow_schema(schema, timezone="UTC")

    def batch(self, wanted: reading.Range, records: list[Any]) -> Any:  # noqa: ANN401 - pyarrow's
        """Return the records as one batch."""
        pa, count = self._arrow, len(records)
        at = pa.array([one.timestamp for one in records], pa.int64())
        utc = at.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
        arrays = [
            pa.array([one.key for one in records], pa.binary()),
            pa.array([one.value for one in records], pa.binary()),
            pa.repeat(wanted.topic, count),
            pa.repeat(pa.scalar(wanted.partition, pa.int32()), count),
            pa.array([one.offset for one in records], pa.int64()),
            utc,
            pa.array([one.timestamp_type for one in records], pa.int32()),
        ]
        if "headers" in self._schema.names:
            kind = self._schema.field("headers").type
            arrays.append(pa.array(map(_headers, records), kind))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _headers(record: Any) -> list[dict[str, Any]] | None:  # noqa: ANN401 - kafka-python's
    return [{"key": key, "value": value} for key, value in record.headers] or None


def _document(found: offsets.Offsets) -> dict[str, Any]:
    """Return offsets in the official source's format, in a fixed order."""
    document: dict[str, Any] = json.loads(offsets.render(found))
    return document


def _offsets(document: Mapping[str, Any] | None) -> offsets.Offsets:
    return offsets.parse(json.dumps(document or {}))


def _exit(*_: object) -> None:
    sys.exit(0)
