"""
``python -m tests.system.soak``: churn and faults for any client of kafka-python's kind.

Exit status: 0 clean, 1 violations, 2 some check could not be judged.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from pkgutil import resolve_name

from tests.system.soak.run import soak
from tests.system.soak.settings import ASSIGNORS, Settings


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.soak", description=__doc__
    )
    add = parser.add_argument
    add(
        "--consumer",
        type=_class_name,
        default="safeconsumer:SafeConsumer",
        metavar="MODULE:CLASS",
        help="the client, such as kafka:KafkaConsumer",
    )
    add("--minutes", type=float, default=5.0)
    add("--faults", type=int, help="end after so many")
    add("--seed", type=int, default=1)
    add("--rate", type=int, default=300, help="records per second")
    add("--out", type=Path, help="a new folder for all files")
    add("--assignor", choices=sorted(ASSIGNORS), default="range")
    add(
        "--workers",
        type=int,
        default=3,
        metavar="N",
        help="with ours, one member of N is a Worker (3); 0: all have a plain loop",
    )
    given = vars(parser.parse_args())
    given["out"] = given["out"] or Path(tempfile.mkdtemp(prefix="soak-"))
    result = soak(Settings(**given))
    print(json.dumps(result, indent=2))  # noqa: T201 - the answer
    print(f"soak: the files are in {given['out']}")  # noqa: T201
    return int(result["status"])


def _class_name(text):
    try:
        kind = resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"{text}: {error}; write MODULE:CLASS, such as kafka:KafkaConsumer"
        raise argparse.ArgumentTypeError(message) from error
    return f"{kind.__module__}:{kind.__qualname__}"


if __name__ == "__main__":
    sys.exit(main())
