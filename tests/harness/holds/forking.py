"""Calls a function in a forked child."""

import os
import signal


def is_true_in_child(question):
    """Ask in a child, which dies if it waits for a thread that it lacks."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        status = 1
        try:
            status = 0 if question() else 2
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0
