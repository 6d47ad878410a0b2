"""
``python -m tests.system.packaging.importing``: imports every module of the package.

In an environment of the lowest versions that are allowed it takes seconds, and finds
a bound below which a name is missing.
"""

import importlib
import pkgutil
import sys

import safeconsumer

# The program itself, and what derives from classes of pyspark, which no extra brings.
_LEFT_OUT = {"safeconsumer.__main__", "safeconsumer.spark.python.reader"}


def main():
    """Fail with the first that cannot be imported; else say how many there are."""
    found = pkgutil.walk_packages(safeconsumer.__path__, "safeconsumer.")
    names = [one.name for one in found if one.name not in _LEFT_OUT]
    for name in names:
        importlib.import_module(name)
    sys.stdout.write(f"{len(names)} modules can be imported\n")


if __name__ == "__main__":
    main()
