"""Reads the rows that a stream has written; uses no Spark, so the check is independent."""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import unquote


def rows(folder):
    """Count how often the file sink has committed each (topic, partition, offset)."""
    return _rows_of(committed(folder))


def delta_rows(folder):
    """Count how often a Delta table contains each (topic, partition, offset)."""
    there = set()
    for entry in sorted((folder / "_delta_log").glob("[0-9]*.json")):
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                there.add(unquote(action["add"]["path"]))
            if "remove" in action:
                there.discard(unquote(action["remove"]["path"]))
    return _rows_of(folder / one for one in there)


def folder_rows(folder):
    """Count how often each record occurs in the folders that Spark has completed."""
    whole = [one.parent for one in folder.glob("*/_SUCCESS")]
    return _rows_of(file for one in whole for file in one.glob("*.parquet"))


def count(folder):
    """Count the rows in all folders, at any depth, that Spark has completed."""
    from pyarrow import parquet  # noqa: PLC0415  only where Spark is tested

    whole = [one.parent for one in folder.rglob("_SUCCESS")]
    files = [file for one in whole for file in one.glob("*.parquet")]
    return sum(parquet.read_metadata(file).num_rows for file in files)


def _rows_of(files):
    from pyarrow import parquet  # noqa: PLC0415  only where Spark is tested

    found = Counter()
    for file in files:
        table = parquet.read_table(file, partitioning=None)
        offsets = table.column("offset").to_pylist()
        if "topic" in table.column_names:
            topics = table.column("topic").to_pylist()
            partitions = table.column("partition").to_pylist()
        else:  # the rows are in a folder for each topic
            named = dict(part.split("=", 1) for part in file.parts if "=" in part)
            topics = [named["topic"]] * len(offsets)
            partitions = [int(named["partition"])] * len(offsets)
        found.update(zip(topics, partitions, offsets, strict=True))
    return found


def committed(folder):
    """Return the files that the sink's log lists; all others are from failed batches."""
    log = folder / "_spark_metadata"
    names = sorted(
        (int(one.name), one) for one in log.glob("[0-9]*") if one.suffix == ""
    )
    compacted = sorted((int(one.stem), one) for one in log.glob("[0-9]*.compact"))
    first = compacted[-1][0] if compacted else -1
    logs = [one for _, one in compacted[-1:]]
    logs += [one for number, one in names if number > first]
    return [
        Path(entry["path"].removeprefix("file:").replace("///", "/"))
        for one in logs
        for line in one.read_text().splitlines()[1:]
        if (entry := json.loads(line))["action"] == "add"
    ]
