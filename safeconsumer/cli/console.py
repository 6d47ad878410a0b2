"""Implements ``safeconsumer console``: serves the operators' web pages."""

import errno
import os
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import CommandError, explained
from safeconsumer.cli.options import ADDRESS, listening
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.cli.statuses import EPILOG
from safeconsumer.holds.explain import printable

_SHORTEST_TOKEN = 16


@click.command(epilog=EPILOG)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="The port of the page; 0 for any.",
)
@owner_option
@click.option(
    "--owner-header",
    metavar="NAME",
    help="The header in which a proxy on this machine names each user, such as "
    "X-Remote-User: that user owns the holds. A user without a name sees no page.",
)
@click.option(
    "--read-only",
    "is_read_only",
    is_flag=True,
    help="Serve no page that changes holds.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a token that does not expire, for scripts (Authorization: "
    "Bearer TOKEN) and for several browsers (/login?token=TOKEN).",
)
@click.option(
    "--metrics",
    "metrics_at",
    metavar=ADDRESS,
    callback=listening,
    help="Serve metrics to Prometheus, without a token: they show names of groups "
    "and topics, and change nothing. 9100 is for this machine, 0.0.0.0:9100 for "
    "others, 0 for any port.",
)
@connection_options
@click.pass_context
def console(
    context: click.Context,
    /,
    *,
    metrics_at: tuple[str, int] | None,
    token_file: Path | None,
    connect: Connect,
    **given: Any,  # noqa: ANN401 - of the options
) -> None:
    """
    Serve web pages about holds, who obeys them, and why partitions are quiet.

    The console listens on this machine only, and prints a link that works once. To use
    it from another machine: ssh -L 8642:127.0.0.1:8642.
    """
    with explained(context), ExitStack() as closing:
        serving = import_module("safeconsumer.console.serve")
        base, settings = connect()
        setup = serving.Setup(
            **{**given, "owner": owner_of(given["owner"])},
            base=base,
            settings=settings,
            host=host(),
            principal=principal(base),
            token=None if token_file is None else _read_token(token_file),
        )

        def show(figures: Any) -> None:  # noqa: ANN401 - of an extra
            if metrics_at is not None:
                _export(figures, metrics_at, closing)

        try:
            serving.serve(setup, lambda link: _print_link(link, token_file), show)
        except KeyboardInterrupt:
            click.echo("The console is closed.")
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EADDRINUSE}:
                raise
            why = error.strerror or error
            message = f"port {setup.port}: {why}; choose one with --port"
            raise CommandError(message) from error


def _export(
    figures: Any,  # noqa: ANN401 - of an extra
    address: tuple[str, int],
    closing: ExitStack,
) -> None:
    # Metrics have a port of their own, because the pages' port requires the token that
    # allows placing holds, and serves only this machine.
    prometheus, (name, port) = import_module("prometheus_client"), address
    registry = prometheus.CollectorRegistry()
    registry.register(figures)
    try:
        server, _ = prometheus.start_http_server(port, name, registry)
    except OSError as error:
        why = error.strerror or error
        message = f"{name}:{port}: {why}; choose another --metrics"
        raise CommandError(message) from error
    closing.callback(server.server_close)
    closing.callback(server.shutdown)
    where = f"http://{name}:{server.server_port}/metrics"
    click.echo(f"Metrics are at {where}, without a token.")


def _print_link(link: str, token_file: Path | None) -> None:
    click.echo(f"The console is at {link}")
    click.echo("The link works once. Ctrl+C ends the console; holds stay as they are.")
    if token_file is not None:
        page = link.partition("?")[0]
        click.echo(
            f"The token in {printable(str(token_file))} is not used up: in a browser "
            f"{page}?token=TOKEN, in scripts the header Authorization: Bearer TOKEN."
        )


def _read_token(file: Path) -> str:
    try:
        token, found = file.read_text(encoding="utf-8").strip(), file.stat()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read: {error}"
        raise CommandError(message) from error
    # Check permissions as ssh does for keys; but a file that belongs to another user,
    # such as a mounted secret, may be readable by its group.
    others = 0o077 if os.name == "posix" and found.st_uid == os.getuid() else 0o007
    if os.name == "posix" and found.st_mode & others:
        lack = "may be read by others, who could then place and lift holds: chmod 600"
        message = f"{file} {lack}"
        raise CommandError(message)
    if len(token) < _SHORTEST_TOKEN:
        message = f"{file}: a token has {_SHORTEST_TOKEN} characters or more"
        raise CommandError(message)
    return token
