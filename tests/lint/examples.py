"""Finds code blocks that no test runs, and commands that do not exist."""

import contextlib
import io
import re
import shlex

import click

from safeconsumer.cli.commands import safeconsumer
from tests.bench.__main__ import parsed
from tests.harness.docs.pages import PAGES, ROOT, blocks, inline

_RUNNABLE = {"python", "console", "text"}
# The README's limits: the number of its characters, and of words before its first code
# block.
_README_CHARACTERS, _WORDS_FIRST = 6_000, 120

_REMARK = re.compile(r"<!--.*?-->", re.DOTALL)

# Commands in prose, each with the extra that it needs and that the README's commands do
# not install.
_EXTRAS = {
    "python -m tests.bench": "ci",
    "python -m tests.system": "ci",
    "sphinx-build": "docs",
}


def findings():
    """Yield the faults in the code blocks and commands of the README and the site's pages."""
    yield from readme_faults((ROOT / "README.md").read_text("utf-8"))
    for page in PAGES:
        for block in blocks(page):
            yield from (f"{block}: {fault}" for fault in faults(block))
        name = page.relative_to(ROOT)
        text = page.read_text("utf-8")
        yield from (f"{name}: {fault}" for fault in inline_faults(text))


def readme_faults(text):
    """Yield a fault if the README or its introduction is too long."""
    if len(text) > _README_CHARACTERS:
        yield f"README.md: over {_README_CHARACTERS} characters; put more behind links"
    if len(_REMARK.sub("", text).partition("```")[0].split()) > _WORDS_FIRST:
        yield f"README.md: over {_WORDS_FIRST} words before something to run"


def faults(block):
    """Yield the faults of a code block."""
    if block.run_by is not None:
        file = block.run_by.split(",")[0]
        if not (ROOT / file).is_file():
            yield f"names {file} as its test, which does not exist"
    elif block.why_not is None and block.language not in _RUNNABLE:
        yield "nothing runs it; say why in a comment before it"
    for line in block.commands:
        words = shlex.split(line, comments=True)
        if words[0] == "safeconsumer":
            try:
                _parse(words[1:])
            except click.UsageError as error:
                yield f"{line}: {error.format_message()}"


def inline_faults(text):
    """Yield the faults in the commands that a page's prose mentions."""
    for command, line in inline(text):
        if fault := _inline_fault(command, line):
            yield f"`{command}`: {fault}"


def _inline_fault(command, line):
    for begin, extra in _EXTRAS.items():
        is_named = f"extra `{extra}`" in line or f".[{extra}]" in line
        if command.startswith(begin) and not is_named:
            return f"say that it needs the extra `{extra}`"
    try:
        if command.startswith("python -m tests.bench "):
            with contextlib.redirect_stderr(io.StringIO()):
                parsed(shlex.split(command)[3:])
        is_typed = "..." not in command and not re.search(r" --[\w-]+$", command)
        if command.startswith("safeconsumer ") and is_typed:
            _parse(shlex.split(command)[1:])
    except (click.UsageError, SystemExit) as error:
        return f"it is refused: {error}"
    return None


def _parse(words):
    command = safeconsumer
    context = click.Context(safeconsumer, info_name="safeconsumer")
    while isinstance(command, click.Group):
        if words[0].startswith("-"):
            return
        found = command.get_command(context, words[0])
        if found is None:
            message = f"there is no command {words[0]}"
            raise click.UsageError(message)
        command, words = found, words[1:]
    parser = command.make_parser(context)
    parser.ignore_unknown_options = False
    if "..." not in words:
        parser.parse_args(args=words)
