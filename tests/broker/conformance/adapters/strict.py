"""Our consumer whose every pause is strict: it lasts until it is resumed."""

from functools import partial

from safeconsumer import Lifetime, SafeConsumer

Strict = partial(SafeConsumer, default_lifetime=Lifetime.UNTIL_RESUMED)
