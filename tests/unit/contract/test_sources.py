"""Functions are short, and use no clock, lock or wait that would break a promise."""

import ast
import functools
import re
from pathlib import Path

import safeconsumer

ROOT = Path(safeconsumer.__file__).parent

# The packages that run in a simulated world; commands, pages and Spark use real time.
PACKAGES = ("_kafka", "audit", "events", "group", "holds", "metrics", "worker")
CLOCKS = {"monotonic", "perf_counter", "sleep", "time"}
LOCKS = {"Condition", "Event", "Lock", "RLock", "Semaphore"}

# The allowed waits, each with the threads or tests that use it.
ALLOWED = {
    ("group/follower.py", "Condition"): "console: threads that answer requests",
    ("spark/activity.py", "Condition"): "streaming: listeners' and requests' threads",
    ("console/state.py", "BoundedSemaphore"): "console: acquired without waiting",
    ("testing/embedded.py", "Condition"): "the kit's broker, in tests",
    ("testing/polling.py", "Event"): "the kit's polling threads, in tests",
}
USE = re.compile(
    r"^\s*(import|from) .*\b(datetime|queue|threading|time)\b", re.MULTILINE
)
WAITS = {"Barrier", "BoundedSemaphore", "Condition", "Event", "Semaphore"}


def sources(*packages):
    """
    Yield the name and the tree of each module of these packages, or of the whole package.

    Modules that import neither clocks nor locks are omitted, because parsing them is
    slow.
    """
    folders = [ROOT / one for one in packages] or [ROOT]
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if USE.search(text):
            yield path.relative_to(ROOT).as_posix(), parsed(text)


@functools.cache
def parsed(text):
    """Return a module's syntax tree, which is cached; tests must not change it."""
    return ast.parse(text)


def is_attribute(node, module, names):
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == module
        and node.attr in names
    )


def unplayable(tree):
    """Yield uses of the standard library that a world cannot simulate."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"{node.lineno}: from time import"
        if isinstance(node, ast.arguments):
            for default in (*node.defaults, *node.kw_defaults):
                if default is not None and is_attribute(default, "time", CLOCKS):
                    yield f"{default.lineno}: a clock as a default argument"
        if is_attribute(node, "queue", {"SimpleQueue"}):
            yield f"{node.lineno}: queue.SimpleQueue"
        if is_attribute(node, "datetime", {"now", "today", "utcnow"}):
            yield f"{node.lineno}: datetime.now"


def module_locks(tree):
    """Yield module-level locks; a world simulates only locks that are created inside it."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                is_call = isinstance(node, ast.Call)
                if is_call and is_attribute(node.func, "threading", LOCKS):
                    yield f"{node.lineno}: a lock of a module"


def test_packages_use_only_clocks_locks_and_queues_that_a_world_simulates():
    consumer = "consumer.py", ast.parse((ROOT / "consumer.py").read_text("utf-8"))
    found = [
        f"{name}:{one}"
        for name, tree in (*sources(*PACKAGES), consumer)
        for one in (*unplayable(tree), *module_locks(tree))
    ]
    assert found == []


def test_only_the_listed_waits_take_a_lock_in_python_code():
    """All other waits use an ``InterruptibleEvent``, which does not leave a lock held."""
    found = {
        (name, node.attr)
        for name, tree in sources()
        for node in ast.walk(tree)
        if is_attribute(node, "threading", WAITS)
    }
    assert found == ALLOWED.keys()


def lines_of(function):
    """Return the number of lines of a function's body, without its docstring."""
    first, *rest = function.body
    is_docstring = ast.get_docstring(function) is not None
    begin = rest[0] if is_docstring and rest else first
    return function.end_lineno - begin.lineno + 1


def test_body_of_each_function_has_at_most_fifty_lines():
    found = [
        f"{name}:{node.lineno}: {node.name}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and lines_of(node) > 50
    ]
    assert found == []
