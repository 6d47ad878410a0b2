"""
Turns what was made before a fork into something that says so in the child.

Threads do not survive a fork, and a consumer whose network thread is gone waits for
ever. The class of each living object is exchanged in the child, so that the parent
pays nothing for the check. What other threads were in the middle of is set right there.
"""

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Any

_alive: "weakref.WeakSet[Any]" = weakref.WeakSet()


def watch(living: object, in_child: type) -> None:
    """
    Give ``living`` another class in every process forked from this one.

    Args:
        living: any object with a ``__dict__``, weakly kept.
        in_child: the class, remembered on the object itself.
    """
    living.__dict__["_safe_class_in_child"] = in_child
    _alive.add(living)


def run_in_child(action: Callable[[], object]) -> None:
    """
    Call ``action`` in every process forked from this one, before anything else there.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=action)


def _exchange_classes() -> None:
    for living in tuple(_alive):
        own, in_child = type(living), living.__dict__["_safe_class_in_child"]
        # A child of both: it stays what isinstance() knew, and of the same layout.
        name = f"Forked{own.__name__}"
        made = type(name, (in_child, own), {"__slots__": ()})
        with contextlib.suppress(TypeError):  # one that cannot must not stop the others
            living.__class__ = made


run_in_child(_exchange_classes)
