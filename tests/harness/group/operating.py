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
    return [
        *("--bootstrap", ",".join(team.broker.client_config["bootstrap_servers"])),
        *("--topic-prefix", team.prefix),
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
