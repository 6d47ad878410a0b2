"""An operator's hands: commands against a team's cluster, while its members work."""

from typing import Any

import pytest
from click.testing import CliRunner, Result

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.errors import JournalError
from tests.harness.group.team import Team


def run(team: Team, *arguments: str, typed: str | None = None) -> Result:
    """Run a command against the team's cluster and control topics."""
    return CliRunner().invoke(safeconsumer, [*arguments, *where(team)], input=typed)


def where(team: Team) -> list[str]:
    """Return the options that name a team's cluster and control topics."""
    settings = team.settings
    return [
        *("--bootstrap", ",".join(team.broker.client_config["bootstrap_servers"])),
        *("--operator-topic", settings.operator_topic),
        *("--group-topic", settings.group_topic),
        *("--status-topic", str(settings.status_topic)),
    ]


def fill_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Let operators' journals have room for what is asked for, and for no answer."""
    write = SharedJournal.write

    def full(self: SharedJournal, entries: Any, cluster: str | None = None) -> None:  # noqa: ANN401 - lines
        if entries[0][0] != "group-asked":
            message = "the disk is full"
            raise JournalError(message)
        write(self, entries, cluster)

    patch.setattr(SharedJournal, "write", full)
