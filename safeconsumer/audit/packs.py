"""
Journals kept as Parquet.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from safeconsumer.audit.fields import check
from safeconsumer.audit.journal import VERSION, Entry, Source, Tail, head_of
from safeconsumer.errors import JournalError, MissingExtraError

_ROWS = 50_000
_NEEDS_PYARROW = "Parquet journals need pyarrow: pip install 'safeconsumer[spark]'"


def pack(source: Source, path: Path) -> None:
    """
    Write a journal as Parquet, a seventh of its size, to be kept.

    Raises:
        JournalError: the source is broken.
        MissingExtraError: pyarrow is missing.
        OSError: the file cannot be written.
    """
    arrow, parquet = _arrow()
    schema = arrow.schema(
        [
            ("n", arrow.int64()),
            ("at", arrow.float64()),
            ("e", arrow.dictionary(arrow.int32(), arrow.string())),
            ("fields", arrow.string()),
        ],
        metadata={"journal": str(VERSION), "member": source.member}
        | {"group": source.group},
    )
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _slices(source.entries):
            writer.write_batch(arrow.RecordBatch.from_pylist(rows, schema=schema))


def _slices(entries: Any) -> Iterator[list[dict[str, object]]]:  # noqa: ANN401 - iterable
    rows: list[dict[str, object]] = []
    for one in entries:
        fields = json.dumps(one.fields, separators=(",", ":"))
        rows.append({"n": one.number, "at": one.at, "e": one.event, "fields": fields})
        if len(rows) == _ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


class Parquet:
    """
    A whole journal in one file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        arrow, self._parquet = _arrow()
        self._broken = (OSError, arrow.ArrowException)
        try:
            metadata = self._parquet.read_schema(path).metadata or {}
        except self._broken as error:
            raise _unreadable(path, error) from error
        head = {key.decode(): value.decode() for key, value in metadata.items()}
        if head.get("journal", "").isdigit():
            head |= {"journal": int(head["journal"])}
        self.name = str(path)
        self.head = head_of(str(path), json.dumps({"at": 0.0, **head}))

    def read(self) -> Generator[Entry, None, Tail]:
        """
        Yield its entries, and return how it ends.
        """
        number = 0
        for entry in self._read(()):
            number = entry.number
            yield entry
        return Tail(number, None)

    def lifts(self) -> Sequence[Entry]:
        """
        Return the entries that say when holds from elsewhere ended.
        """
        return tuple(self._read([("e", "=", "lift")]))

    def _read(self, filters: Sequence[tuple[str, str, str]]) -> Iterator[Entry]:
        wanted = {value for _, _, value in filters}
        try:
            with self._parquet.ParquetFile(self._path) as file:
                for batch in file.iter_batches(_ROWS):
                    for row in batch.to_pylist():
                        if not wanted or row["e"] in wanted:
                            yield self._entry(row)
        except (*self._broken, KeyError) as error:
            raise _unreadable(self._path, error) from error

    def _entry(self, row: Mapping[str, Any]) -> Entry:
        try:
            fields = json.loads(row["fields"])
            check(row["e"], fields)
        except (AttributeError, RecursionError, ValueError) as error:
            message = f"{self._path}, entry {row['n']}: {error}"
            raise JournalError(message) from error
        return Entry(self.head.member, row["n"], row["at"], row["e"], fields)


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise MissingExtraError(_NEEDS_PYARROW) from error


def _unreadable(path: Path, error: BaseException) -> JournalError:
    return JournalError(f"{path} cannot be read: {error}")
