"""
``python -m tests.system.packaging.importing``: imports every module of the package.

In an environment with the lowest allowed versions of all dependencies, the program
detects that a lower bound is too low, because that version lacks a name that the
package imports.
"""

import importlib
import pkgutil
import sys

import safeconsumer

# The package's main program, and a module that needs pyspark; no extra installs
# pyspark.
_LEFT_OUT = {"safeconsumer.__main__", "safeconsumer.spark.python.reader"}


def main():
    """Import all modules and print their number; fail at the first import that fails."""
    found = pkgutil.walk_packages(safeconsumer.__path__, "safeconsumer.")
    names = [one.name for one in found if one.name not in _LEFT_OUT]
    for name in names:
        importlib.import_module(name)
    sys.stdout.write(f"{len(names)} modules can be imported\n")


if __name__ == "__main__":
    main()
