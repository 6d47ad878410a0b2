"""
``safeconsumer console``: the operator's page in a browser.
"""

import errno
import webbrowser
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, explained
from safeconsumer.cli.journaled import journal_option
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.cli.saying import printable

PORT = 8642
_NEEDED = ("jinja2", "starlette", "uvicorn")
_SHORTEST_TOKEN = 16


@click.command(epilog=EPILOG)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@owner_option
@click.option("--read-only", "is_read_only", is_flag=True, help="Only look.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A token that is never used up, for scripts (Authorization: Bearer TOKEN) "
    "and for several browsers (/login?token=TOKEN).",
)
@click.option("--open", "is_opening", is_flag=True, help="Open it in your browser.")
@journal_option
@connection_options
@click.pass_context
def console(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    port: int,
    owner: str | None,
    is_read_only: bool,
    token_file: Path | None,
    is_opening: bool,
    journal: str | None,
    connect: Connect,
) -> None:
    """
    Serve a page in your browser: what is held, who obeys, why a partition is quiet.

    It listens on this machine only, and prints a link that works once. From another
    machine: ssh -L 8642:127.0.0.1:8642.
    """
    with explained(context):
        serving = served()
        kept = SharedJournal(journal) if journal else None
        if kept is not None:
            kept.write(())  # rather than when somebody holds something
        base, settings = connect()
        setup = serving.Setup(
            base=base,
            settings=settings,
            owner=owner_of(owner),
            host=host(),
            principal=principal(base),
            port=port,
            is_read_only=is_read_only,
            token=None if token_file is None else _token(token_file),
            journal=kept,
        )
        try:
            serving.serve(setup, lambda link: _tell(link, token_file, is_opening))
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
        CommandError: a package is missing; says how to install it.
    """
    try:
        return import_module("safeconsumer.console.serve")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        message = f"the console needs {package}: pip install 'safeconsumer[console]'"
        raise CommandError(message) from None


def _tell(link: str, token_file: Path | None, is_opening: bool) -> None:  # noqa: FBT001 - of the command
    click.echo(f"The console is at {link}")
    click.echo("The link works once. Ctrl+C ends the console; holds stay as they are.")
    if token_file is not None:
        page = link.partition("?")[0]
        click.echo(
            f"The token in {printable(str(token_file))} is not used up: in a browser "
            f"{page}?token=TOKEN, in scripts the header Authorization: Bearer TOKEN."
        )
    if is_opening:
        webbrowser.open(link)


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"{file} cannot be read: {error}"
        raise CommandError(message) from error
    if len(token) < _SHORTEST_TOKEN:
        message = f"{file}: a token has {_SHORTEST_TOKEN} characters or more"
        raise CommandError(message)
    return token
