"""Calls a function in a forked child."""

import os

from tests.harness.processes import status_of


def is_true_in_child(question):
    """Return whether a call returns true in a forked child; kill the child if it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if question() else 2
        finally:
            os._exit(status)
    return status_of(child) == 0
