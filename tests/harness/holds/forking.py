"""Calls a function in a forked child."""

import os

from tests.harness.processes import status_of


def is_true_in_child(question):
    """Ask in a child, which is killed if it waits for a thread that it lacks."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if question() else 2
        finally:
            os._exit(status)
    return status_of(child) == 0
