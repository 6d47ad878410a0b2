"""The product uses no clocks, locks and queues that a world cannot play."""

import ast
from pathlib import Path

import safeconsumer

ROOT = Path(safeconsumer.__file__).parent
# Rooms whose code a world runs; commands, pages and Spark stay in real time.
ROOMS = ("_kafka", "audit", "events", "group", "holds", "metrics", "worker")
CLOCKS = {"monotonic", "perf_counter", "sleep", "time"}
LOCKS = {"Condition", "Event", "Lock", "RLock", "Semaphore"}


def _is(node, module, names):
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == module
        and node.attr in names
    )


def _defaults(tree):
    """Find clocks that are kept: one is asked by its module's name, at the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield f"{node.lineno}: from time import"
        if isinstance(node, ast.arguments):
            for default in (*node.defaults, *node.kw_defaults):
                if default is not None and _is(default, "time", CLOCKS):
                    yield f"{default.lineno}: a clock as a default argument"


def _locks(tree):
    """Find locks that modules make: a world plays only those that are made in it."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and _is(node.func, "threading", LOCKS):
                    yield f"{node.lineno}: a lock of a module"


def _waits(tree):
    """Find what waits, or tells the time, in Python's own C code."""
    for node in ast.walk(tree):
        if _is(node, "queue", {"SimpleQueue"}):
            yield f"{node.lineno}: queue.SimpleQueue"
        if _is(node, "datetime", {"now", "today", "utcnow"}):
            yield f"{node.lineno}: datetime.now"


def test_rooms_use_only_clocks_locks_and_queues_that_a_world_plays():
    """A world plays names of the standard library only."""
    found = []
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    for path in [*files, ROOT / "consumer.py"]:
        name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
        here = [*_defaults(tree), *_locks(tree), *_waits(tree)]
        found += [f"{name}:{one}" for one in here]
    assert sorted(found) == []
