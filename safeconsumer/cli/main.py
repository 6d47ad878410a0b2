"""Runs the ``safeconsumer`` command."""

import importlib
import io
import os
import sys
import traceback

from safeconsumer._kafka.installed import explain_failed_import
from safeconsumer.cli.statuses import Status

TRACEBACK = "SAFECONSUMER_TRACEBACK"
"""The environment variable that makes an unexpected error print its whole traceback."""

# The extra that installs each package that a command may need.
_EXTRAS = {
    "click": "group",
    "msgspec": "audit",
    **dict.fromkeys(("jinja2", "starlette", "uvicorn"), "console"),
}


class Abandoned(SystemExit):
    """Ends the program immediately, even if some of its threads are still running."""


def main() -> None:
    """
    Run the command line.

    If a package that a command needs is missing, or kafka-python has an unsupported
    version, the exit status is 2, and one line with the install command is printed.
    After an unexpected error, one line is printed, and the exit status is 70, which is
    not used for anything else; with ``SAFECONSUMER_TRACEBACK=1``, the traceback is
    printed first.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal may not support all characters in a reason or a name. A closed
        # stream is None.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        commands = importlib.import_module("safeconsumer.cli.commands")
        commands.safeconsumer()
    except Abandoned as end:  # a normal exit would wait for to_thread()'s threads
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))
    except KeyboardInterrupt:
        sys.stderr.write("safeconsumer: interrupted\n")
        raise SystemExit(Status.INTERRUPTED) from None
    except Exception as error:  # noqa: BLE001 - every error ends here, in one line
        explained = _install_advice(error)
        if explained is not None:
            sys.stderr.write(f"safeconsumer: {explained}\n")
            raise SystemExit(Status.USAGE) from None
        _report(error)
        raise SystemExit(Status.BROKEN) from None


def _report(error: Exception) -> None:
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, OSError):  # for example --help on a full disk
        sys.stderr.write(f"safeconsumer: this system refuses: {_one_line(error)}\n")
        return
    what = f"{type(error).__name__}: {_one_line(error)}".removesuffix(": ")
    sys.stderr.write(
        f"safeconsumer: {what}: this error is a defect; please report "
        f"it{_address()}, with the output under {TRACEBACK}=1\n"
    )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "".join(one if one.isprintable() else "?" for one in text)[:300]


def _address() -> str:
    try:
        metadata = importlib.import_module("importlib.metadata").metadata
        urls = metadata("safeconsumer").get_all("Project-URL") or []
    except ImportError:  # a checkout that is not installed
        return ""
    found = dict(one.split(", ", 1) for one in urls)
    return f" at {found['Issues']}" if "Issues" in found else ""


def _install_advice(error: Exception) -> str | None:
    if not isinstance(error, ImportError | AttributeError):
        return None
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in _EXTRAS:
        extra = _EXTRAS[package]
        return f"the command needs {package}: pip install 'safeconsumer[{extra}]'"
    unsupported = explain_failed_import(error)
    return None if unsupported is None else str(unsupported)
