"""
How events leave the consumer: hooks, called under no lock, that cannot break it.
"""

import importlib
import logging
from collections.abc import Callable, Iterable

from safeconsumer.events.consumer import Event

Hook = Callable[[Event], object]
"""
Takes one event, quickly, on any thread. What it returns is ignored; what it raises
is logged once per hook and counted.
"""

log = logging.getLogger("safeconsumer")


class LazyHook:
    """
    A hook that is imported at the first event, so that importing us stays quick.

    Args:
        path: ``package.module:function``.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._hook: Hook | None = None

    def __call__(self, event: Event) -> None:
        """
        Pass the event on.
        """
        if self._hook is None:
            module, _, name = self._path.partition(":")
            self._hook = getattr(importlib.import_module(module), name)
        self._hook(event)

    def __repr__(self) -> str:
        return f"LazyHook({self._path!r})"


class Dispatcher:
    """
    Hands each event to every hook and survives those that raise.

    Attributes:
        failures: how often each hook raised, by its ``repr``.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._hooks = tuple(hooks)
        self.failures: dict[str, int] = {}
        for hook in self._hooks:
            if not callable(hook):
                message = f"a hook must be callable with one event, not {hook!r}"
                raise TypeError(message)

    def dispatch(self, event: Event) -> None:
        """
        Call every hook with the event; never raises an ``Exception``.
        """
        for hook in self._hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - whatever it does, poll goes on
                self._count(hook, error)

    def _count(self, hook: Hook, error: Exception) -> None:
        name = _name_of(hook)
        self.failures[name] = self.failures.get(name, 0) + 1
        if self.failures[name] == 1:
            log.error(
                "hook %s failed; it is called again, but not logged again",
                name,
                exc_info=error,
            )


def _name_of(hook: Hook) -> str:
    try:
        return repr(hook)
    except Exception:  # noqa: BLE001 - a hook breaks nothing, not even by its name
        return f"<{type(hook).__name__} without a repr>"
