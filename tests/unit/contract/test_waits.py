"""No wait that a signal handler may interrupt takes a lock in Python code."""

import ast
from pathlib import Path

import safeconsumer

# What is waited for, or set, on threads that no signal handler interrupts; or is public.
ALLOWED = {
    ("group/follower.py", "Condition"): "console: threads that answer requests",
    ("spark/activity.py", "Condition"): "streaming: listeners' and requests' threads",
    ("console/state.py", "BoundedSemaphore"): "console: tried, never waited for",
    ("testing/embedded.py", "Condition"): "the kit's broker, in tests",
    ("testing/polling.py", "Event"): "the kit's polling threads, in tests",
}
KINDS = {"Barrier", "BoundedSemaphore", "Condition", "Event", "Semaphore"}


def test_no_wait_but_the_listed_ones_takes_a_lock_in_python_code():
    """Others are an ``InterruptibleEvent``: an interrupt leaves no lock taken."""
    (folder,) = map(Path, safeconsumer.__path__)
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    found = {
        (path.relative_to(folder).as_posix(), node.attr)
        for path, text in texts.items()
        if "threading." in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == "threading"
        and node.attr in KINDS
    }
    assert found == ALLOWED.keys()
