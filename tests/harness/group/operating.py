"""An operator's hands: commands against a team's cluster, while its members work."""

from click.testing import CliRunner, Result

from safeconsumer.cli.commands import safeconsumer
from tests.harness.group.team import Team


def run(team: Team, *arguments: str) -> Result:
    """Run a command against the team's cluster and control topics."""
    return CliRunner().invoke(safeconsumer, [*arguments, *where(team)])


def where(team: Team) -> list[str]:
    """Return the options that name a team's cluster and control topics."""
    return [
        *("--bootstrap", ",".join(team.broker.client_config["bootstrap_servers"])),
        *("--topic-prefix", team.prefix),
    ]
