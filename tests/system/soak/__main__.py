"""
``python -m tests.system.soak``: churn and faults for any client of kafka-python's kind.

Exit status: 0 clean, 1 violations, 2 it could not be told.
"""

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path

from tests.system.soak.run import soak
from tests.system.soak.settings import ASSIGNORS, Settings


def main():
    told = _parser().parse_args()
    out = told.out or Path(tempfile.mkdtemp(prefix="soak-"))
    settings = Settings(
        consumer=told.consumer,
        minutes=told.minutes,
        faults=told.faults,
        seed=told.seed,
        rate=told.rate,
        out=out,
        assignor=told.assignor,
        workers=told.workers,
    )
    result = soak(settings)
    print(json.dumps(result, indent=2))  # noqa: T201 - the answer
    print(f"soak: papers are in {out}")  # noqa: T201
    return int(result["status"])


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.soak", description=__doc__
    )
    parser.add_argument(
        "--consumer",
        type=_named,
        default="safeconsumer.SafeConsumer",
        metavar="CLASS",
        help="such as kafka.KafkaConsumer, or kafka:KafkaConsumer",
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", type=int, help="end after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=300, help="records per second")
    parser.add_argument("--out", type=Path, help="a new folder for all papers")
    parser.add_argument("--assignor", choices=sorted(ASSIGNORS), default="range")
    parser.add_argument(
        "--workers",
        type=int,
        default=3,
        metavar="N",
        help="with ours, one member of N is a Worker (3); 0: all have a plain loop",
    )
    return parser


def _named(text):
    module, _, name = text.replace(":", ".").rpartition(".")
    try:
        getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"{text}: {error}; write MODULE.CLASS, such as kafka.KafkaConsumer"
        raise argparse.ArgumentTypeError(message) from error
    return f"{module}.{name}"


if __name__ == "__main__":
    sys.exit(main())
