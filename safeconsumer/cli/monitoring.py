"""Implements ``safeconsumer monitoring``: writes dashboard, alert rules and runbook."""

import re
from collections.abc import Iterator
from importlib.resources import files as packaged
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from safeconsumer.cli.errors import give_up
from safeconsumer.cli.statuses import EPILOG, Status

# An address without a fragment and without characters that would end a YAML string.
_ADDRESS = re.compile(r"https?://[^\s#\"\\{]+")


def _checked_address(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> str | None:
    if text is not None and not _ADDRESS.fullmatch(text):
        message = f"{text!r} is no address like https://wiki.example/runbook"
        raise click.BadParameter(message, context, parameter)
    return text


@click.command(epilog=EPILOG)
@click.argument(
    "folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path)
)
@click.option(
    "--runbook",
    metavar="URL",
    callback=_checked_address,
    help="The address of your copy of runbook.md: the alerts link to it.",
)
@click.pass_context
def monitoring(context: click.Context, folder: Path, runbook: str | None) -> None:
    """
    Write a Grafana dashboard, Prometheus alert rules and a runbook for them into DIR.

    Import dashboard.json into Grafana, and add alerts.yml to the rule_files of
    Prometheus. lag-alert.yml shows how a lag alert can ignore held partitions. An
    existing file that differs is not changed: delete or move it first. The other files
    are written, and the status is 1. Without --runbook, the alerts link to the file
    runbook.md, which does not work in messages from Alertmanager.
    """
    there = packaged("safeconsumer.metrics").joinpath("files").iterdir()
    found = sorted(there, key=lambda one: one.name)
    files = {one.name: one.read_text("utf-8") for one in found}
    if runbook is not None:
        links = files["alerts.yml"].replace('"runbook.md#', f'"{runbook}#')
        files["alerts.yml"] = links
    try:
        changed = [*_changed(folder, files)]
        new = {name: text for name, text in files.items() if name not in changed}
        _write(folder, new)
    except OSError as error:
        give_up(context, f"{folder} cannot be written: {error}", Status.FAILED)
    for name in new:
        click.echo(str(folder / name))
    if changed:
        message = (
            f"not changed, since it differs: {', '.join(changed)} in {folder}; "
            "delete or move it first"
        )
        give_up(context, message, Status.FAILED)


def _changed(folder: Path, files: dict[str, str]) -> Iterator[str]:
    for name, text in files.items():
        file = folder / name
        if file.exists() and file.read_bytes() != text.encode():
            yield name


def _write(folder: Path, files: dict[str, str]) -> None:
    # The disk may be full, so write all files completely before any of them is moved
    # into place.
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".safeconsumer-") as room:
        for name, text in files.items():
            (Path(room) / name).write_text(text, "utf-8")
        for name in files:
            (Path(room) / name).replace(folder / name)
