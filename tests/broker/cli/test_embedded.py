"""Commands for groups against the embedded broker: it serves them as any other."""

import pytest
from click.testing import CliRunner, Result

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.testing import EmbeddedBroker


def run(broker: EmbeddedBroker, *command: str) -> Result:
    arguments = [*command, "--bootstrap", broker.bootstrap]
    return CliRunner().invoke(safeconsumer, arguments)


def test_the_topics_of_control_are_made_and_nobody_is_there_yet() -> None:
    """Twice makes them once; then a hold of a topic to come is kept."""
    with EmbeddedBroker() as broker:
        made = run(broker, "control", "init")
        assert (made.exit_code, made.stdout.count("created")) == (Status.DONE, 3)
        again = run(broker, "control", "init")
        assert (again.exit_code, again.stdout.count("created")) == (Status.DONE, 0)
        hold = (
            "pause",
            "orders",
            "--group",
            "billing",
            "--reason",
            "x",
            "--owner",
            "a",
            "--future",
        )
        held = run(broker, *hold, "--future", "--new-group")
        assert (held.exit_code, held.stderr) == (Status.DONE, "")
        assert "orders" in run(broker, "history", "--group", "billing").stdout


@pytest.mark.parametrize("command", [["pause", "--reason", "x"], ["resume"]])
def test_without_topics_of_control_there_is_nothing_to_write_to(
    command: list[str],
) -> None:
    """It says who makes them."""
    with EmbeddedBroker() as broker:
        ended = run(broker, *command, "orders", "--group", "billing")
    assert (ended.exit_code, ended.stdout) == (Status.REFUSED, "")
    assert "there is no topic __safeconsumer_holds_ops: safeconsumer" in ended.stderr
