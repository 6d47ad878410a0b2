"""Reads the faults to plant from this folder, which has a table for each package."""

import ast
import functools
import tomllib
from pathlib import Path

from attrs import field, frozen

FOLDER = Path(__file__).parent
PACKAGES = sorted(path.stem for path in FOLDER.glob("*.toml"))

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class UnplantableError(Exception):
    """A fault's ``old`` text does not occur exactly once in its function."""


@frozen(kw_only=True)
class Fault:
    """
    One change to the package, which at least one test must detect.

    Attributes:
        id: a name that does not change when the fault is adapted to new code.
        file: the path of the file to change, relative to ``safeconsumer/``.
        function: the function to change, with its class, as in ``FetchWait.end``.
        old: the text to replace; it occurs exactly once in the function.
        new: the text that replaces ``old``.
        tests: the tests that are expected to kill the fault; they run first.
        suite: the tests that run if ``tests`` do not kill the fault.
        equivalent: the reason why no program can notice the change; empty if programs
            can.
        hangs: whether the fault also counts as killed if the tests run into the time
            limit.
    """

    id: str
    file: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...] = field(converter=tuple)
    suite: tuple[str, ...] = field(converter=tuple)
    equivalent: str = ""
    hangs: bool = False

    def __str__(self):
        return f"{self.id} {self.file} {self.function}"

    def planted(self, text):
        """
        Return the file's text with the fault planted in it.

        Raises:
            UnplantableError: the function does not exist, or its text no longer has
                ``old``.
        """
        lines = text.splitlines(keepends=True)
        found = _places(text).get(self.function, ())
        if len(found) != 1:
            message = f"{self}: {len(found)} functions of this name, not one"
            raise UnplantableError(message)
        begin, end = found[0]
        body = "".join(lines[begin:end])
        if (count := body.count(self.old)) != 1:
            message = (
                f"{self}: its old text occurs {count} times in the function, not once"
            )
            raise UnplantableError(message)
        changed = body.replace(self.old, self.new)
        return "".join([*lines[:begin], changed, *lines[end:]])


def faults(packages):
    """Return the faults to plant in these packages."""
    return [fault for one in packages for fault in _in_table(FOLDER / f"{one}.toml")]


def _in_table(path):
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    for row in table["fault"]:
        yield Fault(suite=table["tests"], **row)


@functools.cache
def _places(text):
    # Returns the first and the last line number of each function. The result is cached
    # because many rows change the same file.
    places = {}
    for name, one in _functions(ast.parse(text)):
        places.setdefault(name, []).append((one.lineno - 1, one.end_lineno))
    return places


def _functions(tree, prefix=""):
    """Yield the functions of a module, each with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | _Function):
            if not isinstance(node, ast.ClassDef):
                yield prefix + node.name, node
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)
