"""A ``SafeConsumer`` that obeys a group, as the public cases drive it."""

from functools import partial

from safeconsumer import Control, SafeConsumer
from safeconsumer.testing.cases import adapter


class Adapter(adapter.Adapter):
    """
    Drives it, with the control topics of a prefix.

    Args:
        prefix: as ``Control.prefixed`` takes it.
    """

    def __init__(self, prefix):
        self._control = Control.prefixed(prefix)

    def open(self, settings):
        control = self._control if settings["group"] else None
        self._make = partial(SafeConsumer, control=control, log=False)
        super().open(settings)
