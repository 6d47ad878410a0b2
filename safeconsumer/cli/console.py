"""Implements ``safeconsumer console``: starts the operators' page for a browser."""

import errno
import os
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from safeconsumer.cli.addresses import METAVAR, listening
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, explained
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.cli.saying import printable

PORT = 8642
_NEEDED = ("jinja2", "starlette", "uvicorn")
_SHORTEST_TOKEN = 16


@click.command(epilog=EPILOG)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="The port of the page; 0 for any.",
)
@owner_option
@click.option(
    "--owner-header",
    metavar="NAME",
    help="The header in which a proxy on this machine names each user, who owns what "
    "that user holds: X-Remote-User. Whom it does not name sees no page.",
)
@click.option("--read-only", "is_read_only", is_flag=True, help="Only look.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with a token that does not expire, for scripts (Authorization: "
    "Bearer TOKEN) and for several browsers (/login?token=TOKEN).",
)
@click.option(
    "--metrics",
    "metrics_at",
    metavar=METAVAR,
    callback=listening,
    help="Answer Prometheus, without a token: it shows names of groups and "
    "topics, and can change nothing. 9100 is for this machine, 0.0.0.0:9100 for "
    "others, 0 for any port.",
)
@connection_options
@click.pass_context
def console(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    port: int,
    owner: str | None,
    owner_header: str | None,
    is_read_only: bool,
    token_file: Path | None,
    metrics_at: tuple[str, int] | None,
    connect: Connect,
) -> None:
    """
    Serve a page in your browser: what is held, who obeys, why a partition is quiet.

    It listens on this machine only, and prints a link that works once. From another
    machine: ssh -L 8642:127.0.0.1:8642.
    """
    with explained(context), ExitStack() as closing:
        serving = served()
        base, settings = connect()
        setup = serving.Setup(
            base=base,
            settings=settings,
            owner=owner_of(owner),
            owner_header=owner_header,
            host=host(),
            principal=principal(base),
            port=port,
            is_read_only=is_read_only,
            token=None if token_file is None else _token(token_file),
        )
        try:
            serving.serve(
                setup,
                lambda link: _tell(link, token_file),
                lambda one: _show(one, metrics_at, closing),
            )
        except KeyboardInterrupt:
            click.echo("The console is closed.")
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EADDRINUSE}:
                raise
            message = f"port {port}: {error.strerror or error}; choose one with --port"
            raise CommandError(message) from error


def served() -> Any:  # noqa: ANN401 - a module of an extra
    """
    Return the module that serves the console.

    Raises:
        CommandError: a package is missing; the message says how to install it.
    """
    try:
        return import_module("safeconsumer.console.serve")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        message = f"the console needs {package}: pip install 'safeconsumer[console]'"
        raise CommandError(message) from None


def _show(
    figures: Any,  # noqa: ANN401 - of an extra
    address: tuple[str, int] | None,
    closing: ExitStack,
) -> None:
    if address is None:
        return
    host, port = address
    # Not on the pages' port: that needs the token that may place holds, and is for this
    # machine only.
    prometheus = import_module("prometheus_client")
    registry = prometheus.CollectorRegistry()
    registry.register(figures)
    try:
        server, _ = prometheus.start_http_server(port, host, registry)
    except OSError as error:
        why = error.strerror or error
        message = f"{host}:{port}: {why}; choose another --metrics"
        raise CommandError(message) from error
    closing.callback(server.server_close)
    closing.callback(server.shutdown)
    click.echo(
        f"Metrics are at http://{host}:{server.server_port}/metrics, without a token."
    )


def _tell(link: str, token_file: Path | None) -> None:
    click.echo(f"The console is at {link}")
    click.echo("The link works once. Ctrl+C ends the console; holds stay as they are.")
    if token_file is not None:
        page = link.partition("?")[0]
        click.echo(
            f"The token in {printable(str(token_file))} is not used up: in a browser "
            f"{page}?token=TOKEN, in scripts the header Authorization: Bearer TOKEN."
        )


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
        found = file.stat()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read: {error}"
        raise CommandError(message) from error
    # As ssh has it; what is another's, such as a mounted secret, may be the group's.
    if os.name == "posix" and found.st_mode & (
        0o077 if found.st_uid == os.getuid() else 0o007
    ):
        message = (
            f"{file} may be read by others, who could then hold and lift: chmod 600"
        )
        raise CommandError(message)
    if len(token) < _SHORTEST_TOKEN:
        message = f"{file}: a token has {_SHORTEST_TOKEN} characters or more"
        raise CommandError(message)
    return token
