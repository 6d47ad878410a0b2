"""
Commands for groups against the embedded broker, which cannot serve them.
"""

import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.testing import EmbeddedBroker


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["status", "--group", "billing"], Status.REFUSED),
        (["groups"], Status.REFUSED),
        (["control", "init"], Status.UNREACHABLE),
    ],
)
def test_a_command_for_groups_says_what_it_needs(
    command: list[str], status: Status
) -> None:
    """
    One line, with the way out.
    """
    with EmbeddedBroker() as broker:
        where = ["--bootstrap", broker.bootstrap]
        ended = CliRunner().invoke(safeconsumer, [*command, *where])
    assert (ended.exit_code, ended.stdout) == (status, "")
    assert "use Apache Kafka" in ended.stderr
    assert "embedded broker of safeconsumer.testing does not serve" in ended.stderr
