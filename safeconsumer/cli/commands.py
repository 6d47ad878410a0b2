"""Lists every command in one group, and imports a command's module when it is called."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import click
from attrs import frozen
from click.shell_completion import CompletionItem

# The statuses that a shell reports for a program ended by SIGPIPE or SIGINT. They are
# in Status, too, which is imported only with the modules that need Kafka.
CLOSED = 141
INTERRUPTED = 130


@frozen
class _Command:
    """
    A command that is not imported yet.

    Attributes:
        module: its module, below this package.
        name: its name in that module.
        short: the first sentence of its help, for the list of all commands.
    """

    module: str
    name: str
    short: str


# Importing the needs of all commands takes up to a second: a list of commands needs
# none of them, and each command only its own.
_COMMANDS: Mapping[str, _Command] = {
    "audit": _Command(
        "audit", "audit", "Judge what consumers did by their delivery journals."
    ),
    "console": _Command(
        "console",
        "console",
        "Serve a page in your browser: what is held, who obeys, why a partition is "
        "quiet.",
    ),
    "control": _Command(
        "topics_init", "control", "Set up the topics that group pauses are kept on."
    ),
    "dead-letters": _Command(
        "dead_letters",
        "dead_letters",
        "Look at dead letters, and send them back to their topics.",
    ),
    "demo": _Command(
        "demo",
        "demo",
        "Show KafkaConsumer and SafeConsumer side by side, through real rebalances.",
    ),
    "doctor": _Command(
        "doctor",
        "doctor",
        "Check versions, topics, ACLs, clocks and members, and say what to do.",
    ),
    "extend": _Command(
        "holding",
        "extend",
        "Let your holds of exactly these scopes last longer, counted from now.",
    ),
    "groups": _Command(
        "watching",
        "groups",
        "Show all groups: holds, members, what does not obey, and which hold ends "
        "next.",
    ),
    "history": _Command(
        "watching",
        "history",
        "List what was held, extended and lifted in the last 30 days, oldest first.",
    ),
    "monitoring": _Command(
        "monitoring",
        "monitoring",
        "Write a Grafana dashboard, alert rules for Prometheus, and their runbook.",
    ),
    "pause": _Command(
        "holding",
        "pause",
        "Hold partitions for every member of a group, now and in the future.",
    ),
    "resume": _Command(
        "lifting",
        "resume",
        "Lift holds of exactly these scopes; others stay, and are named.",
    ),
    "run": _Command("run", "run", "Run a Worker of your program, as a process."),
    "status": _Command(
        "watching",
        "status",
        "Show a group's holds, its members and what each obeys, and the lag of what "
        "is held.",
    ),
    "timeline": _Command(
        "timeline", "timeline", "Draw what consumers did, by their delivery journals."
    ),
    "wait": _Command(
        "watching",
        "wait",
        "Wait until every member obeys what was placed before, and the scopes are "
        "quiet.",
    ),
}


@contextlib.contextmanager
def _ended() -> Iterator[None]:
    """
    End with the documented status if the output's reader stops, or Ctrl-C comes.

    This covers the import of a command, too, where click would end with status 1.
    """
    try:
        yield
    except BrokenPipeError:
        # Standard output is not a file, as in tests, or it is closed.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())  # the rest of the output goes there
        raise SystemExit(CLOSED) from None
    except KeyboardInterrupt:
        click.echo("safeconsumer: interrupted", err=True)
        raise SystemExit(INTERRUPTED) from None


class _Commands(click.Group):
    """A group that imports a command when it is used, and lists commands without it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        cmd_name: str,
    ) -> click.Command | None:
        """Import a command; None if there is no command with that name."""
        known = _COMMANDS.get(cmd_name)
        if known is None:
            return None
        module: Any = import_module(f"safeconsumer.cli.{known.module}")
        command: click.Command = getattr(module, known.name)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands, each with its first sentence."""
        with formatter.section("Commands"):
            rows = [(name, one.short) for name, one in sorted(_COMMANDS.items())]
            formatter.write_dl(rows)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's
    ) -> click.Context:
        """Read the options; --help prints the help and ends."""
        with _ended():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Import a command and run it."""
        with _ended():
            return super().invoke(ctx)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return the commands that begin with the given text."""
        found = [
            CompletionItem(name, help=one.short)
            for name, one in sorted(_COMMANDS.items())
            if name.startswith(incomplete)
        ]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*found, *options]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="safeconsumer", prog_name="safeconsumer")
def safeconsumer() -> None:
    """Pause Kafka consumers so that they stay paused."""
