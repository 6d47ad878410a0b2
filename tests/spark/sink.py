"""
What a stream has written, read without Spark: an oracle of its own.
"""

import json
from collections import Counter
from pathlib import Path

Row = tuple[str, int, int]


def rows(folder: Path) -> Counter[Row]:
    """
    Count each (topic, partition, offset) that the file sink has committed.
    """
    from pyarrow import parquet  # noqa: PLC0415  only where Spark is tested

    found: Counter[Row] = Counter()
    for file in committed(folder):
        table = parquet.read_table(
            file, columns=["topic", "partition", "offset"], partitioning=None
        )
        found.update(zip(*(column.to_pylist() for column in table), strict=True))
    return found


def committed(folder: Path) -> list[Path]:
    """
    Return the files that the sink's own log names; others are of batches that died.
    """
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
