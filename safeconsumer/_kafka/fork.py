"""
Makes objects from before a fork raise in the child, where they cannot work.

Threads do not survive a fork, and a consumer whose network thread is gone would wait
forever. The class of each living object is exchanged in the child, so the parent pays
nothing for the check. State that other threads were changing is repaired there.
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
    """Call ``action`` first in every process forked from this one."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=action)


def _exchange_classes() -> None:
    for living in tuple(_alive):
        own, in_child = type(living), living.__dict__["_safe_class_in_child"]
        # A child of both classes: isinstance() still works, and the layout is the same.
        name = f"Forked{own.__name__}"
        made = type(name, (in_child, own), {"__slots__": ()})
        with contextlib.suppress(TypeError):  # one failure must not stop the others
            living.__class__ = made


run_in_child(_exchange_classes)
