"""An operator's hands: commands against a team's cluster, while its members work."""

from click.testing import CliRunner, Result

from safeconsumer.cli.commands import safeconsumer
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
