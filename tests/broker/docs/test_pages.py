"""README and the pages of the site do what they say: each block runs, or says why not."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from tests.harness.docs.pages import PAGES, ROOT, Block, blocks, printed_after
from tests.harness.group.tour import PAGE, lasting, told

LIMIT = 30.0
README_LINES = 150
ADDRESS = 'bootstrap_servers="localhost:9092"'
EVERY = [block for page in PAGES for block in blocks(page)]
RUN = [
    page
    for page in PAGES
    if any(one.is_run_here and one.language == "python" for one in blocks(page))
]
_RUNNABLE = {"python", "console", "text"}


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_there_are_examples() -> None:
    """Else the tests below would run nothing."""
    assert len(PAGES) > 20
    assert len(RUN) > 10


def test_readme_is_short() -> None:
    """Whoever wants more follows its links."""
    assert len(PAGES[0].read_text("utf-8").splitlines()) <= README_LINES


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_what_a_page_points_to_is_there(page: Path) -> None:
    """Files beside it, and design notes; Sphinx looks at what it makes itself."""
    text = page.read_text("utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    there = [page.parent / one for one in links if "generated/" not in one]
    there += [ROOT / one for one in re.findall(r"`(design/[\w.-]+)`", text)]
    assert [one for one in there if not one.exists()] == []


@pytest.mark.parametrize("block", EVERY, ids=str)
def test_a_block_runs_or_says_why_not(block: Block) -> None:
    """By a comment before it; a test that it names is there."""
    if block.run_by is not None:
        assert (ROOT / block.run_by.split(",")[0]).is_file()
        return
    assert block.why_not is not None or block.language in _RUNNABLE
    assert "-->" not in (block.why_not or "")  # it would be another block's, too


@pytest.mark.parametrize("block", EVERY, ids=str)
def test_a_test_that_is_said_to_run_commands_has_them(block: Block) -> None:
    """Each of them, with its options; those of the tour stand in its tutorial."""
    if not re.search(r"(runs?|replays) these commands", block.why_not or ""):
        return
    named = [ROOT / one for one in re.findall(r"tests/[\w/]+\.py", block.why_not or "")]
    text = "".join(one.read_text("utf-8") for one in named)
    if "import tour" in text:
        text += PAGE.read_text("utf-8")
    for line in block.commands:
        program, command, *words = shlex.split(line)
        if program == "safeconsumer":
            wanted = [command, *(one for one in words if one.startswith("--"))]
            assert [one for one in wanted if one not in text] == [], line


@pytest.mark.parametrize("block", EVERY, ids=str)
def test_a_command_is_one_that_there_is(block: Block) -> None:
    """With options that it has; also where nothing runs it."""
    for line in block.commands:
        words = shlex.split(line, comments=True)
        if words[0] == "safeconsumer":
            _parsed(words[1:])


def _parsed(words: list[str]) -> None:
    command: click.Command = safeconsumer
    context = click.Context(safeconsumer, info_name="safeconsumer")
    while isinstance(command, click.Group):
        if words[0].startswith("-"):
            return
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    parser = command.make_parser(context)
    parser.ignore_unknown_options = False
    if "..." not in words:
        parser.parse_args(args=words)


@pytest.mark.any_broker
@pytest.mark.parametrize("page", RUN, ids=_name)
def test_a_page_runs(  # noqa: PLR0913, PLR0917 - fixtures
    page: Path,
    kafka_broker: Any,  # noqa: ANN401 - one of several kinds
    kafka_topic: Callable[..., str],
    make_producer: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """
    Its blocks one after the other, as a reader would type them into one session.

    This run's address, topics and group stand in the place of the page's.
    """
    monkeypatch.chdir(tmp_path)
    topic = kafka_topic(partitions=4)
    producer = make_producer()
    for value in (b"first", b"last"):  # a worker runs until a record tells it to end
        producer.send(topic, value).get(LIMIT)
    for name in (f"{topic}-eu", f"{topic}.dlq"):
        kafka_broker.create_topic(name, 2)
    reader = Reader(page, kafka_broker, topic)
    for block in reader.blocks:
        if block.is_run_here:
            reader.read(block)


class Reader:
    """Somebody who types a page."""

    def __init__(self, page: Path, broker: Any, topic: str) -> None:  # noqa: ANN401
        self.blocks = blocks(page)
        self._broker = broker
        self._topic = topic
        self._names: dict[str, Any] = {"CONFIG": broker.client_config}

    def read(self, block: Block) -> None:
        """Run it, and compare what it prints with what the page shows."""
        if block.language == "console":
            assert lasting(told(block.code, self._command)) == lasting(block.code)
        if block.language == "python":
            shown = printed_after(self.blocks, block)
            printed = self._python(block)
            if shown is not None:
                assert lasting(printed.replace(self._topic, "orders")) == lasting(shown)

    def _python(self, block: Block) -> str:
        code = block.code.replace(ADDRESS, "**CONFIG")
        if "localhost:9092" in block.code:
            code = re.sub(r"""(["':])orders\b""", rf"\1{self._topic}", code)
            code = code.replace('"billing"', f'"g-{self._topic}"')
        printed = io.StringIO()
        # so that a traceback names the line of the page
        lines = "\n" * (block.line - 1) + code
        if "\ndef test_" in code:
            return self._tests(code)
        with contextlib.redirect_stdout(printed):
            exec(compile(lines, str(block.page), "exec"), self._names)  # noqa: S102 - our own text
        return printed.getvalue()

    def _tests(self, code: str) -> str:
        file = Path("test_of_the_page.py")
        file.write_text(code, "utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ended = subprocess.run(  # noqa: S603 - our own text
            [*command, str(file)],
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stdout
        return ""

    def _command(self, command: str) -> str:
        name, *arguments = shlex.split(command)
        if name == "export":
            return ""
        assert name == "safeconsumer"
        broker = self._names.get("broker", self._broker)
        env = {"SAFECONSUMER_BOOTSTRAP": broker.bootstrap}
        env["SAFECONSUMER_OWNER"] = "alice"
        return CliRunner().invoke(safeconsumer, arguments, env=env).output
