"""
``python -m tests.system.churn``: workers that come, leave and are killed, judged.

Exit status: 0 clean, 1 violations, 2 it could not be told.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.harness.brokers import choice
from tests.system.churn.run import churn
from tests.system.churn.settings import Settings


def main() -> int:
    """Run as told by the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.churn", description=__doc__
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=100, help="records per second")
    parser.add_argument("--cooperative", action="store_true", help="not eager")
    parser.add_argument("--kafka", choices=list(choice.Kind), default="java")
    parser.add_argument("--out", type=Path, help="a new folder for all papers")
    told = parser.parse_args()
    out = told.out or Path(tempfile.mkdtemp(prefix="churn-"))
    settings = Settings(
        minutes=told.minutes,
        seed=told.seed,
        rate=told.rate,
        out=out,
        is_cooperative=told.cooperative,
    )
    started: Any = choice.start(choice.Kind(told.kafka))
    with started as broker:
        result = churn(settings, broker.bootstrap)
    print(json.dumps(result, indent=2))  # noqa: T201 - the answer
    print(f"churn: papers are in {out}")  # noqa: T201
    return int(result["status"])


if __name__ == "__main__":
    sys.exit(main())
