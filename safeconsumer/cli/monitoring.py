"""
``safeconsumer monitoring``: dashboard, alert rules and runbook, as files.
"""

from pathlib import Path

import click

from safeconsumer.cli.errors import CommandError, Status, epilog, give_up
from safeconsumer.metrics import alerts, dashboard


@click.command(epilog=epilog(Status.DONE, Status.FAILED, Status.USAGE))
@click.option(
    "--write",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to write into; it is made if it is not there.",
)
@click.option("--force", "is_forced", is_flag=True, help="Replace files that differ.")
@click.pass_context
def monitoring(context: click.Context, folder: Path, *, is_forced: bool) -> None:
    """
    Write a Grafana dashboard, alert rules for Prometheus, and their runbook.

    dashboard.json is imported into Grafana; alerts.yml goes among the rule_files of
    Prometheus; lag-alert.yml shows how a lag alert is mute about what is held. A file
    that is there and differs is left alone, unless with --force.
    """
    files = {
        "dashboard.json": dashboard.dashboard(),
        "alerts.yml": alerts.rules(),
        "lag-alert.yml": alerts.lag_rules(),
        alerts.RUNBOOK: alerts.runbook(),
    }
    try:
        _check(folder, files, is_forced=is_forced)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
            click.echo(str(folder / name))
    except CommandError as error:
        give_up(context, str(error), error.status)
    except OSError as error:
        give_up(context, f"{folder} cannot be written: {error}", Status.FAILED)


def _check(folder: Path, files: dict[str, str], *, is_forced: bool) -> None:
    changed = [
        name
        for name, text in files.items()
        if (folder / name).exists() and (folder / name).read_bytes() != text.encode()
    ]
    if changed and not is_forced:
        message = (
            f"{', '.join(changed)} in {folder} differ from what would be written: "
            "nothing was; --force replaces them"
        )
        raise CommandError(message, Status.USAGE)
