"""Lists all commands in one group, and imports a command's module on its first use."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from safeconsumer.cli.listing import Listing
from safeconsumer.cli.statuses import Status

# The commands by purpose, each with its module in this package and its name there.
_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Hold": {
        "pause": "holding.pause",
        "extend": "holding.extend",
        "resume": "holding.resume",
        "reset-offsets": "holding.reset_offsets",
        "status": "watching.status",
        "wait": "watching.wait",
        "history": "history.history",
        "console": "console.console",
    },
    "Set up": {
        "control": "topics_init.control",
        "doctor": "doctor.doctor",
        "monitoring": "monitoring.monitoring",
    },
    "Work": {
        "run": "run.run",
        "dead-letters": "dead_letters.dead_letters",
    },
    "Prove": {
        "audit": "audit.audit",
    },
    "Try": {
        "demo": "demo.demo",
    },
}
WHERE = {name: where for one in _COMMANDS.values() for name, where in one.items()}


@contextlib.contextmanager
def _ended() -> Iterator[None]:
    """
    Exit with the documented status if the output loses its reader, or on Ctrl-C.

    The context also covers the import of a command, during which click would exit with
    status 1.
    """
    try:
        yield
    except BrokenPipeError:
        # These errors mean that stdout is closed or, as in tests, not a file.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            # the rest of the output goes to os.devnull
            os.dup2(nowhere, sys.stdout.fileno())
        raise SystemExit(Status.CLOSED) from None
    except KeyboardInterrupt:
        click.echo("safeconsumer: interrupted", err=True)
        raise SystemExit(Status.INTERRUPTED) from None


class _Commands(Listing):
    """A group that imports commands only when used, because importing all takes a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Return the names of all commands, grouped by purpose."""
        return [*WHERE]

    def uses(self, ctx: click.Context) -> dict[str, list[str]]:  # noqa: ARG002 - click's
        """Return the names of commands by purpose."""
        return {use: [*names] for use, names in _COMMANDS.items()}

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        cmd_name: str,
    ) -> click.Command | None:
        """Import a command; return None if there is no command with that name."""
        if cmd_name not in WHERE:
            return None
        module, _, name = WHERE[cmd_name].partition(".")
        found: Any = import_module(f"safeconsumer.cli.{module}")
        command: click.Command = getattr(found, name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; if it does not exist, suggest a similar name, unlike click."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = get_close_matches(args[0], WHERE, n=1)
            if not meant or args[0].startswith("-"):
                raise
            message = f"{error.message} Did you mean {meant[0]!r}?"
            raise click.UsageError(message, ctx) from error

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's
    ) -> click.Context:
        """Parse the options; --help prints the help and exits."""
        with _ended():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Import a command and run it."""
        with _ended():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="safeconsumer", prog_name="safeconsumer")
def safeconsumer() -> None:
    """Pause Kafka consumers so that they stay paused."""
