"""Makes the files of a stream's checkpoint in the form in which Spark writes them."""

import json


def batch(at, *sources):
    """Return the text of a file in Spark's offset log; each source is a mapping or a text."""
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": int(at * 1000), "conf": {}}
    lines = [one if isinstance(one, str) else json.dumps(one) for one in sources]
    return "\n".join(("v1", json.dumps(facts), *lines))


def orders(*ends):
    return {"orders": {str(number): end for number, end in enumerate(ends)}}


def log(*batches, first=0, start=None):
    """Return a checkpoint's files; each batch is a tuple of its time and its sources."""
    files = {
        f"offsets/{number}": batch(at, *sources)
        for number, (at, *sources) in enumerate(batches, first)
    }
    if start is not None:
        files["sources/0/0"] = f"\0v1\n{json.dumps(start)}"
    return files
