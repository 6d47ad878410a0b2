"""
Runs a soak test with random faults on any client that has kafka-python's methods.

The exit status is 0 for a clean run, 1 for violations, and 2 if a check could not be
judged.
"""

import json
import sys

from tests.system.soak.run import soak
from tests.system.soak.settings import parsed


def main():
    settings = parsed(about=__doc__)
    result = soak(settings)
    print(json.dumps(result, indent=2))  # noqa: T201 - the program's output
    print(f"soak: the files are in {settings.out}")  # noqa: T201
    return result["status"]


if __name__ == "__main__":
    sys.exit(main())
