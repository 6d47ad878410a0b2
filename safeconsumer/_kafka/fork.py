"""Calls functions in forked processes, and makes the error for using a parent's consumer."""

import os
from collections.abc import Callable

from safeconsumer.errors.kafka_python import ForkedConsumerError


def run_in_child(action: Callable[[], object]) -> None:
    """Call ``action`` at the start of every process that is forked from this one."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=action)


def forked_error() -> ForkedConsumerError:
    """Return the error for a call in a child process that needs the parent's threads."""
    return ForkedConsumerError(
        "this consumer was created before the process was forked, and its threads "
        "run only in the parent; create a consumer in the child process"
    )
