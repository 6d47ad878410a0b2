"""A question that is asked in a forked child."""

import os
import signal


def is_true_in_child(question):
    """Ask it in a child that dies if it waits for threads that it has not got."""
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
