"""Reads and writes Spark's folders on any file system that a session supports."""

import re
from typing import Any

from safeconsumer.errors.base import SparkSettingError

# The name of a batch's file in one of Spark's logs; files with other names are still
# being written.
_BATCH = re.compile(r"(\d+)(\.compact)?")


def refuse_another_checkpoint(spark: Any, to: str, checkpoint: str) -> None:  # noqa: ANN401 - pyspark is optional
    """
    Check that a checkpoint knows every batch in a folder of files.

    Spark counts the batches of each checkpoint from 0, and a folder accepts a batch
    only if its number is new there: Spark silently drops the batches of a second
    checkpoint until their numbers exceed those in the folder. This check does not
    notice a second checkpoint that has as many batches as the folder.

    Args:
        spark: the session.
        to: the folder of the files, on any file system of the session.
        checkpoint: the folder of the checkpoint with which a query starts.

    Raises:
        SparkSettingError: the folder has batches of another checkpoint, so a query
            would lose records.
    """
    written = _latest(spark, to, "_spark_metadata")
    if written > _latest(spark, checkpoint, "offsets"):
        message = (
            f"{to} has batches up to number {written} of a checkpoint other than "
            f"{checkpoint}: Spark would skip the batches of {checkpoint} that have the "
            "same numbers, and their records would be lost. Name the checkpoint with "
            f"which {to} was written, or another folder"
        )
        raise SparkSettingError(message)


def _latest(spark: Any, folder: str, log: str) -> int:  # noqa: ANN401 - pyspark is optional
    path, files = _place(spark, folder, log)
    if not files.exists(path):
        return -1
    names = [str(one.getPath().getName()) for one in files.listStatus(path)]
    found = map(_BATCH.fullmatch, names)
    return max((int(one[1]) for one in found if one is not None), default=-1)


class CheckpointSkips:
    """
    Stores the skips of batches in a checkpoint, in one file for each batch.

    A file has the batch's number as its name. Spark's own Kafka source ignores these
    files, so it can still use the checkpoint.

    Thread rules: only one thread may use this.

    Args:
        spark: the session.
        folder: the source's folder in the checkpoint.
    """

    def __init__(self, spark: Any, folder: str) -> None:  # noqa: ANN401 - pyspark is optional
        self._spark = spark
        self._folder = f"{folder}/skips"

    def load(self, batch: int) -> str:
        """Return the text that is stored for a batch; empty if there is none."""
        path, files = _place(self._spark, self._folder, str(batch))
        if not files.exists(path):
            return ""
        opened = files.open(path)
        try:
            read = self._spark._jvm.org.apache.commons.io.IOUtils.toString  # noqa: SLF001 - pyspark's way
            return str(read(opened, "UTF-8"))
        finally:
            opened.close()

    def store(self, batch: int, text: str) -> None:
        """Store the text for a batch, and replace any earlier text."""
        path, files = _place(self._spark, self._folder, str(batch))
        opened = files.create(path, True)  # noqa: FBT003 - Java's; it overwrites
        opened.write(text.encode())
        opened.close()


def _place(spark: Any, folder: str, name: str) -> tuple[Any, Any]:  # noqa: ANN401 - pyspark is optional
    path = spark._jvm.org.apache.hadoop.fs.Path(folder, name)  # noqa: SLF001 - pyspark's way
    state = spark._jsparkSession.sessionState()  # noqa: SLF001 - pyspark's way
    return path, path.getFileSystem(state.newHadoopConf())
