"""Exit statuses: one meaning each, in the program and in its help."""

import re

import click
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.statuses import MEANINGS, Status


def every_command():
    found = {}
    context = click.Context(safeconsumer)
    for name in safeconsumer.list_commands(context):
        command = safeconsumer.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {one}": it for one, it in command.commands.items()}
        else:
            found[name] = command
    return found


def test_every_help_says_what_the_table_says():
    meanings = {int(one): MEANINGS[one] for one in Status}
    for name in every_command():
        help_ = CliRunner().invoke(safeconsumer, [*name.split(), "--help"]).stdout
        _, _, told = help_.partition("Exit status:\n")
        found = re.findall(r"^ {2,6}(\d+)  (.+(?:\n {9}.+)*)", told, re.MULTILINE)
        assert found, name
        any_may = {Status.BROKEN, Status.INTERRUPTED, Status.CLOSED}
        assert {str(int(one)) for one in any_may} <= dict(found).keys(), name
        for status, meaning in found:
            assert " ".join(meaning.split()) == meanings[int(status)], name


def test_a_mistyped_command_is_told_what_was_meant():
    ended = CliRunner().invoke(safeconsumer, ["paus"])
    assert ended.exit_code == Status.USAGE
    assert "No such command 'paus'. Did you mean 'pause'?" in ended.stderr
    ended = CliRunner().invoke(safeconsumer, ["--wai", "quiet"])
    assert "'wait'" not in ended.stderr


def test_commands_are_listed_by_use():
    """Not by the alphabet: what an operator needs first is first."""
    listed = CliRunner().invoke(safeconsumer, ["--help"]).stdout
    heads = [line[:-1] for line in listed.splitlines() if line.endswith(":")]
    assert heads[1:] == ["Hold", "Set up", "Work", "Prove", "Try"]


def test_every_option_says_what_it_is_for():
    """A bare name would have to be guessed."""
    for name, command in every_command().items():
        bare = [
            one.opts[-1]
            for one in command.params
            if isinstance(one, click.Option) and not one.hidden and not one.help
        ]
        assert bare == [], name


def test_the_list_of_commands_says_what_each_says_of_itself():
    """Nothing is cut, at eighty columns either."""
    context = click.Context(safeconsumer)
    for path in ([], ["control"], ["dead-letters"]):
        group = safeconsumer
        for name in path:
            group = safeconsumer.get_command(context, name)
        assert isinstance(group, click.Group)
        listed = CliRunner().invoke(safeconsumer, [*path, "--help"]).stdout
        rows = " ".join(listed.partition("Options:\n")[2].split())
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            own = " ".join((command.help or "").split("\n\n")[0].split())
            assert f"{name} {own}" in rows, name
