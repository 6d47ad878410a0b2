"""
``python -m tests.system.packaging.importing``: imports every module of the package.

In an environment with the lowest allowed versions it takes seconds, and finds a bound
below which a name is missing.
"""

import importlib
import pkgutil
import sys

import safeconsumer

# This program, and subclasses of pyspark's classes, which no extra installs.
_LEFT_OUT = {"safeconsumer.__main__", "safeconsumer.spark.python.reader"}


def main():
    """Fail with the first module that cannot be imported; otherwise print their number."""
    found = pkgutil.walk_packages(safeconsumer.__path__, "safeconsumer.")
    names = [one.name for one in found if one.name not in _LEFT_OUT]
    for name in names:
        importlib.import_module(name)
    sys.stdout.write(f"{len(names)} modules can be imported\n")


if __name__ == "__main__":
    main()
