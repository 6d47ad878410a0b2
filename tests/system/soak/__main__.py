"""
``python -m tests.system.soak``: churn and faults for any client of kafka-python's kind.

Exit status: 0 clean, 1 violations, 2 some check could not be judged.
"""

import json
import sys

from tests.system.soak.run import soak
from tests.system.soak.settings import parsed


def main():
    settings = parsed(about=__doc__)
    result = soak(settings)
    print(json.dumps(result, indent=2))  # noqa: T201 - the answer
    print(f"soak: the files are in {settings.out}")  # noqa: T201
    return result["status"]


if __name__ == "__main__":
    sys.exit(main())
