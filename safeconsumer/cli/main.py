"""
Entry point of the command ``safeconsumer``.
"""

import importlib
import sys

from safeconsumer._kafka.fixes.secrets import hide_logins
from safeconsumer._kafka.installed import explain_failed_import

FAILED = 1
USAGE = 2
INTERRUPTED = 130

_NEEDED = ("click", "rich")


def main() -> None:
    """
    Run the command line.

    Without the packages of the extra ``cli``, or with a kafka-python that is not
    supported, it says in one line what to install and exits with status 2.
    """
    hide_logins()  # a program of ours: every client in it
    try:
        commands = importlib.import_module("safeconsumer.cli.commands")
        commands.safeconsumer()
    except (ImportError, AttributeError) as error:
        explained = _explained(error)
        if explained is None:
            raise
        sys.stderr.write(f"safeconsumer: {explained}\n")
        raise SystemExit(USAGE) from None
    except KeyboardInterrupt:
        sys.stderr.write("safeconsumer: interrupted\n")
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:  # what no command explains: its --help, on a full disk
        sys.stderr.write(f"safeconsumer: this system refuses: {error}\n")
        raise SystemExit(FAILED) from None


def _explained(error: ImportError | AttributeError) -> str | None:
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in _NEEDED:
        return f"the command needs {package}: pip install 'safeconsumer[cli]'"
    unsupported = explain_failed_import(error)
    return None if unsupported is None else str(unsupported)
