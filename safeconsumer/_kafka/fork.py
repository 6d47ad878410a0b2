"""Calls functions in forked processes."""

import os
from collections.abc import Callable


def run_in_child(action: Callable[[], object]) -> None:
    """Call ``action`` first in every process forked from this one."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=action)
