"""
Entry point of the command ``safeconsumer``.
"""

import importlib
import sys

from safeconsumer._kafka.fixes.secrets import hide_logins

FAILED = 1
USAGE = 2
INTERRUPTED = 130

_NEEDED = ("click", "rich")


def main() -> None:
    """
    Run the command line.

    Without the packages of the extra ``cli`` it says in one line how to install them
    and exits with status 2.
    """
    hide_logins()  # a program of ours: every client in it
    try:
        commands = importlib.import_module("safeconsumer.cli.commands")
        commands.safeconsumer()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.stderr.write(
            f"safeconsumer: the command needs {package}: "
            "pip install 'safeconsumer[cli]'\n"
        )
        raise SystemExit(USAGE) from None
    except KeyboardInterrupt:
        sys.stderr.write("safeconsumer: interrupted\n")
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:  # what no command explains: its --help, on a full disk
        sys.stderr.write(f"safeconsumer: this system refuses: {error}\n")
        raise SystemExit(FAILED) from None
