"""An operator's hands: commands against a team's cluster, while its members work."""

from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer


def run(team, *arguments):
    """Run a command against the team's cluster and control topics."""
    return CliRunner().invoke(safeconsumer, [*arguments, *where(team)])


def where(team):
    """Return the options that name a team's cluster and control topics."""
    return [
        *("--bootstrap", ",".join(team.broker.client_config["bootstrap_servers"])),
        *("--topic-prefix", team.prefix),
    ]
