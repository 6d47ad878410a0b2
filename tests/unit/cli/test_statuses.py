"""Tests the help of each command: its exit statuses, options and position in the list."""

import re

import click
import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.statuses import MEANINGS, Status

CONTEXT = click.Context(safeconsumer)


def commands():
    """Return every command by its name."""
    found = {}
    for name in safeconsumer.list_commands(CONTEXT):
        command = safeconsumer.get_command(CONTEXT, name)
        if isinstance(command, click.Group):
            found |= {f"{name} {one}": it for one, it in command.commands.items()}
        else:
            found[name] = command
    return found


def printed(*arguments):
    return CliRunner().invoke(safeconsumer, arguments)


@pytest.mark.parametrize("name", commands())
def test_help_lists_the_statuses_and_explains_every_option(name):
    text = printed(*name.split(), "--help").stdout
    statuses = text.partition("Exit status:\n")[2]
    found = re.findall(r"^ {2,6}(\d+)  (.+(?:\n {9}.+)*)", statuses, re.MULTILINE)
    meanings = {status: " ".join(meaning.split()) for status, meaning in found}
    assert meanings == {str(int(one)): MEANINGS[one] for one in Status}
    bare = [
        one.opts[-1]
        for one in commands()[name].params
        if isinstance(one, click.Option) and not one.hidden and not one.help
    ]
    assert bare == []


def test_mistyped_command_suggests_the_nearest_name():
    ended = printed("paus")
    assert ended.exit_code == Status.USAGE
    assert "No such command 'paus'. Did you mean 'pause'?" in ended.stderr
    assert "'wait'" not in printed("--wai", "quiet").stderr


def test_list_of_commands_groups_them_by_purpose():
    listed = printed("--help").stdout
    heads = [line[:-1] for line in listed.splitlines() if line.endswith(":")]
    assert heads[1:] == ["Hold", "Set up", "Work", "Prove", "Try"]


@pytest.mark.parametrize("path", [[], ["control"], ["dead-letters"]], ids=str)
def test_list_of_commands_shows_the_whole_first_sentence_of_each_command(path):
    group = safeconsumer
    for name in path:
        group = safeconsumer.get_command(CONTEXT, name)
    rows = " ".join(printed(*path, "--help").stdout.partition("Options:\n")[2].split())
    for name in group.list_commands(CONTEXT):
        text = group.get_command(CONTEXT, name).help
        sentence = " ".join(text.split("\n\n")[0].split())
        assert f"{name} {sentence}" in rows
