"""Reads raw delivery journals into DataFrames of lines or of entries."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

Frame = Any
"""
A DataFrame of pyspark, which is an optional dependency.
"""

# The fields of entries, as safeconsumer/journal/format.py defines them.
_FIELDS: Mapping[str, str] = {
    "tp": "string",
    "from": "bigint",
    "next": "bigint",
    "first": "bigint",
    "last": "bigint",
    "count": "bigint",
    "gaps": "array<array<bigint>>",
    "after": "bigint",
    "asked": "timestamp",
    "peek": "boolean",
    "written": "timestamp",
    "created": "timestamp",
    "partitions": "array<string>",
    "generation": "int",
    "topics": "map<string,string>",
    "cluster": "string",
    "op": "string",
    "id": "string",
    "scopes": "array<string>",
    "scope": "string",
    "owner": "string",
    "every": "boolean",
    "until": "timestamp",
    "lifetime": "string",
    "moves": "boolean",
    "since": "timestamp",
    "why": "string",
    "offsets": "map<string,bigint>",
    "offset": "bigint",
    "ok": "boolean",
    "order": "string",
    "batch": "array<bigint>",
    "lane": "string",
    "attempt": "int",
    "epoch": "bigint",
    "least": "double",
    "most": "double",
    "notes": "map<string,string>",
    "done": "array<bigint>",
    "before": "bigint",
    "records": "map<string,array<bigint>>",
}

_OF_EACH = {"n": "bigint", "at": "timestamp", "e": "string"}

SCHEMA = ", ".join(
    f"`{name}` {kind}"
    for name, kind in {
        "file": "string",
        "member": "string",
        "group": "string",
        **_OF_EACH,
        "topic": "string",
        "partition": "int",
        **{name: kind for name, kind in _FIELDS.items() if name != "tp"},
    }.items()
)
"""
The columns of :func:`journals`, as Spark's DDL.
"""

# A head is recognized by the beginning of the line.
_IS_HEAD = r"""text rlike '^\\s*\\{\\s*"journal"'"""
_OF_HEAD = "member string, `group` string"


def journals(spark: Any, path: str, *, stream: bool = False) -> Frame:  # noqa: ANN401 - pyspark is optional
    """
    Return the entries of delivery journals as rows, with the columns of ``SCHEMA``.

    A field that an entry does not have is null. Lines that are not entries are left
    out; :func:`~safeconsumer.spark.findings` reports broken and missing journals.

    Args:
        spark: the session.
        path: a file, a folder with all its subfolders, or a glob, on any file system
            that the session can read, such as ``s3a://bucket/journals``. Only
            ``*.journal`` files are read.
        stream: whether to return a streaming DataFrame, in which the entries of each
            file appear once. Use it for folders, such as buckets, in which each part of
            a journal appears as a complete file. A task needs about four times a part's size
            in memory (``JournalWriter(part_bytes=)``).
    """
    if not stream:
        return _entries(lines(spark, [path]))
    whole = _options(spark.readStream).text(path, wholetext=True)
    texts = whole.selectExpr(
        "_metadata.file_path as file", "split(value, '\\n') as texts"
    )
    return _entries(
        texts.selectExpr(
            "file",
            f"from_json(texts[0], '{_OF_HEAD}') as head",
            "explode(texts) as text",
        )
    )


def _entries(texts: Frame) -> Frame:
    kinds = {"n": "bigint", "at": "timestamp", "e": "string", **_FIELDS}
    schema = ", ".join(
        f"`{name}` {'double' if kind == 'timestamp' else kind}"
        for name, kind in kinds.items()
    )
    found = texts.selectExpr(
        "file", "head", f"from_json(text, '{schema}') as entry"
    ).where("entry.n is not null and entry.e is not null")
    return found.selectExpr(
        "file",
        "head.member as member",
        "head.`group` as `group`",
        *(_column(name, kinds[name]) for name in _OF_EACH),
        "regexp_extract(entry.tp, '^(.*):[0-9]+$', 1) as topic",
        "cast(nullif(regexp_extract(entry.tp, ':([0-9]+)$', 1), '') as int) as partition",
        *(_column(name, kind) for name, kind in _FIELDS.items() if name != "tp"),
    )


def _column(name: str, kind: str) -> str:
    if kind == "timestamp":
        value = f"cast(round(entry.`{name}` * 1000000) as bigint)"
        return f"timestamp_micros({value}) as `{name}`"
    return f"entry.`{name}`"


def lines(spark: Any, paths: Sequence[str]) -> Frame:  # noqa: ANN401 - pyspark is optional
    """
    Return the lines of journals, each with all data needed to parse it separately.

    The columns are ``file``; ``size``, the file's size in bytes; ``block`` and
    ``line``, by which a file's lines are sorted; ``text``; and ``head``, the file's
    first line.

    Raises:
        AnalysisException: a path does not exist.
    """
    functions = import_module("pyspark.sql.functions")
    read = _options(spark.read).option("lineSep", "\n").text(list(paths))
    texts = read.selectExpr(
        "_metadata.file_path as file",
        "_metadata.file_size as size",
        "input_file_block_start() as block",
        "monotonically_increasing_id() as line",
        "value as text",
    )
    heads = (
        texts.where(_IS_HEAD)
        .repartition(1)  # there are only a few such rows
        .groupBy("file")
        .agg(functions.expr("min(struct(block, line, text)).text as head"))
        .selectExpr("file", f"from_json(head, '{_OF_HEAD}') as head")
    )
    return texts.join(functions.broadcast(heads), "file", "left")


def listed(spark: Any, path: str) -> list[str]:  # noqa: ANN401 - pyspark is optional
    """
    Return the journal files at a path, without reading them.

    Raises:
        AnalysisException: the path does not exist.
    """
    found = _options(spark.read.format("binaryFile")).load(path)
    return sorted(row.path for row in found.select("path").collect())


def _options(reader: Any) -> Any:  # noqa: ANN401 - pyspark's, of batches or streams
    # Missing or broken files must not be skipped, however a session is configured.
    options = {
        "recursiveFileLookup": "true",
        "pathGlobFilter": "*.journal",
        "ignoreMissingFiles": "false",
        "ignoreCorruptFiles": "false",
    }
    return reader.options(**options)
