"""Commands for groups against the embedded broker, which cannot serve them."""

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
    """One line, with the way out."""
    with EmbeddedBroker() as broker:
        where = ["--bootstrap", broker.bootstrap]
        ended = CliRunner().invoke(safeconsumer, [*command, *where])
    assert (ended.exit_code, ended.stdout) == (status, "")
    assert "use Apache Kafka" in ended.stderr
    assert "embedded broker of safeconsumer.testing does not serve" in ended.stderr


@pytest.mark.parametrize("command", [["pause", "--reason", "x"], ["resume"]])
def test_without_topics_of_control_there_is_nothing_to_write_to(
    command: list[str],
) -> None:
    """It says who makes them, and ``control init`` says what it needs."""
    with EmbeddedBroker() as broker:
        told = [*command, "orders", "--group", "billing", "--bootstrap"]
        ended = CliRunner().invoke(safeconsumer, [*told, broker.bootstrap])
    assert (ended.exit_code, ended.stdout) == (Status.REFUSED, "")
    assert "there is no topic __safeconsumer_holds_ops: safeconsumer" in ended.stderr
