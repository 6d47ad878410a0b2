"""
Refuses to archive into a folder that another checkpoint has written.

Batches have numbers, which a checkpoint counts from 0. A folder of Parquet takes a
batch only if its number is new there, as a crash may have it come again: batches of a
second checkpoint would be passed over, silently, until they have caught up. A Delta
table tells checkpoints apart, and has the records of a topic once for each.
"""

import importlib
import re
from typing import Any

from safeconsumer.errors import SparkSettingError

# A batch in one of Spark's logs: its number; others there are being written.
_BATCH = re.compile(r"(\d+)(\.compact)?")
_NONE = -1
_SHOWN = 5


def refuse_another_checkpoint(spark: Any, to: str, checkpoint: str) -> None:  # noqa: ANN401 - pyspark is optional
    """
    Return if a folder of Parquet has no batch that a checkpoint does not know.

    Raises:
        SparkSettingError: it has; nothing was written.
    """
    written = _latest(spark, to, "_spark_metadata")
    if written > _latest(spark, checkpoint, "offsets"):
        message = (
            f"{to} has batches up to number {written} of another checkpoint than "
            f"{checkpoint}: Spark would pass over those of this one that have the same "
            "numbers, and their records would be lost. Name the checkpoint with which "
            "it was written, or another folder"
        )
        raise SparkSettingError(message)


def refuse_to_repeat(
    spark: Any,  # noqa: ANN401 - pyspark is optional
    to: str,
    checkpoint: str,
    topics: str,
) -> None:
    """
    Return if a Delta table has nothing of some topics, or the checkpoint is not new.

    Args:
        spark: the session.
        to: the folder of the table.
        checkpoint: the folder of the checkpoint.
        topics: a pattern, as Java has it, over whole names.

    Raises:
        SparkSettingError: it has records that would be read again; nothing was written.
    """
    is_new = _latest(spark, checkpoint, "offsets") == _NONE
    if not is_new or not _names(spark, to, "_delta_log"):
        return
    functions = importlib.import_module("pyspark.sql.functions")
    known = spark.read.format("delta").load(to).select("topic").distinct()
    again = known.filter(functions.col("topic").rlike(rf"\A(?:{topics})\z"))
    names = sorted(row.topic for row in again.limit(_SHOWN).collect())
    if names:
        message = (
            f"{to} has records of {', '.join(names)} already, and the checkpoint "
            f"{checkpoint} is new: they would be there twice. Name the checkpoint with "
            "which it was written, or another folder; or say from where on to read "
            "(startingOffsets)"
        )
        raise SparkSettingError(message)


def _latest(spark: Any, folder: str, log: str) -> int:  # noqa: ANN401 - pyspark is optional
    found = map(_BATCH.fullmatch, _names(spark, folder, log))
    return max((int(one[1]) for one in found if one is not None), default=_NONE)


def _names(spark: Any, folder: str, log: str) -> list[str]:  # noqa: ANN401 - pyspark is optional
    # On any file system that Spark knows, with its settings.
    path = spark._jvm.org.apache.hadoop.fs.Path(folder, log)  # noqa: SLF001 - pyspark's way
    state = spark._jsparkSession.sessionState()  # noqa: SLF001 - pyspark's way
    files = path.getFileSystem(state.newHadoopConf())
    if not files.exists(path):
        return []
    return [str(one.getPath().getName()) for one in files.listStatus(path)]
