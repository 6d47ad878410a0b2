"""Defines the exit statuses, without importing kafka-python, whose import may fail."""

import textwrap
from enum import IntEnum


class Status(IntEnum):
    """The exit statuses; each has one meaning, in every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    BROKEN = 70  # sysexits.h: EX_SOFTWARE
    INTERRUPTED = 130
    CLOSED = 141


MEANINGS = {
    Status.DONE: "Done; the output is correct.",
    Status.FAILED: "The outcome is bad, and a line describes it: a check did not pass, a "
    "wait was in vain, a data topic does not exist, a record failed or was not "
    "committed.",
    Status.USAGE: "Wrong usage: a bad setting, worker, journal or scope, an unknown "
    "group; or a package is missing.",
    Status.UNREACHABLE: "No broker answers in time; trying again may help.",
    Status.REFUSED: "The broker refuses: a login, a permission, a policy, a size; or a "
    "control topic does not exist or would lose holds.",
    Status.BROKEN: "The command itself failed, for an error that it does not foresee, "
    "or a system that refuses its output; no outcome is known. "
    "SAFECONSUMER_TRACEBACK=1 in the environment shows where.",
    Status.INTERRUPTED: "Interrupted.",
    Status.CLOSED: "The reader of the output stopped reading.",
}


# The last part of each command's help. click does not rewrap this block, even if it is
# too wide for a terminal.
EPILOG = "\b\nExit status:\n" + "\n".join(
    textwrap.fill(
        meaning,
        79,
        initial_indent=f"  {status:>3}  ",
        subsequent_indent=" " * 7,
    )
    for status, meaning in MEANINGS.items()
)
