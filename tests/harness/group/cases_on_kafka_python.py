"""Adapts a ``SafeConsumer`` that obeys its group's holds to the public cases."""

from functools import partial

from safeconsumer import Control, SafeConsumer
from safeconsumer.testing.cases import adapter


class Adapter(adapter.Adapter):
    """
    The adapter through which the public cases drive a ``SafeConsumer``.

    Args:
        prefix: the prefix of the control topics, for ``Control.prefixed``.
    """

    def __init__(self, prefix):
        self._control = Control.prefixed(prefix)

    def open(self, settings):
        control = self._control if settings["group"] else None
        self._make = partial(SafeConsumer, control=control, log=False)
        super().open(settings)
