"""Runs the code blocks in the README and on the site's pages."""

import code
import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from tests.harness.docs.pages import (
    PAGES,
    ROOT,
    blocks,
    inline,
    printed_after,
)
from tests.harness.group.tour import lasting, renewed
from tests.harness.processes import ran_python

LIMIT = 30.0
ADDRESS = 'bootstrap_servers="localhost:9092"'
LIBRDKAFKAS = '"bootstrap.servers": "localhost:9092"'
RUN = [
    page
    for page in PAGES
    if any(one.is_run_here and one.language == "python" for one in blocks(page))
]

# How commands in prose begin, each with an option that makes the command exit
# immediately. Other commands are tested elsewhere: the linter parses commands of
# ``safeconsumer``, and .ci/run runs sphinx-build.
STARTS = {"python -m tests.": "--help", "pytest --pyargs ": "--collect-only"}
STARTED = {
    command: how
    for page in PAGES
    for command, _ in inline(page.read_text("utf-8"))
    for begin, how in STARTS.items()
    if command.startswith(begin)
}


def _name(page):
    return str(page.relative_to(ROOT))


@pytest.mark.any_broker
@pytest.mark.parametrize("page", RUN, ids=_name)
def test_code_blocks_of_a_page_run(  # noqa: PLR0913, PLR0917 - fixtures
    page, kafka_broker, kafka_topic, make_producer, monkeypatch, tmp_path
):
    """
    The blocks run one after another, as if they were pasted into one session.

    The broker address, topics and group of this run replace those on the page.
    """
    monkeypatch.chdir(tmp_path)
    topic = kafka_topic(partitions=4)
    producer = make_producer()
    for value in (b"first", b"last"):  # a page's worker stops after the value "last"
        producer.send(topic, value).get(LIMIT)
    for name in (f"{topic}-eu", f"{topic}.dlq"):
        kafka_broker.create_topic(name, 2)
    reader = Reader(page, kafka_broker, topic)
    for block in reader.blocks:
        if block.is_run_here:
            reader.read(block)


@pytest.mark.parametrize("command", STARTED)
def test_command_in_a_sentence_of_a_page_runs(command):
    """The tests run with the extra ``ci``, which includes the extra that the line names."""
    words = shlex.split(command.removeprefix("python -m "))
    ended = ran_python("-m", *words, STARTED[command], cwd=ROOT, timeout=100)
    assert ended.returncode == 0, ended.stdout + ended.stderr


class Pasting(code.InteractiveConsole):
    """A Python prompt into which a code block is pasted line by line."""

    def __init__(self, names, block):
        super().__init__(names, str(block.page))
        self._line = block.line

    def paste(self, text):
        """Run a text line by line; return the output except the values of expressions."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), _values_unseen():
            for number, line in enumerate(text.splitlines()):
                self._at = self._line + number
                is_open = self.push(line)
            assert not is_open, f"{self.filename}:{self._at}: a blank line is missing"
        return printed.getvalue()

    def showsyntaxerror(self, *_, **__):
        """Fail the test, because the prompt would only print the error and skip the line."""
        pytest.fail(f"{self.filename}:{self._at}: {sys.exception()}")

    def showtraceback(self):
        error = sys.exception()
        assert error is not None
        error.add_note(f"{self.filename}:{self._at}")
        raise error


@contextlib.contextmanager
def _values_unseen():
    before, sys.displayhook = sys.displayhook, lambda _: None
    try:
        yield
    finally:
        sys.displayhook = before


class Reader:
    def __init__(self, page, broker, topic):
        self.blocks = blocks(page)
        self._broker = broker
        self._topic = topic
        self._names = {"CONFIG": broker.client_config}

    def read(self, block):
        """Run the block, and compare its output with the page."""
        if block.language == "console":
            assert lasting(renewed(block.code, self._command)) == lasting(block.code)
        if block.language == "python":
            shown = printed_after(self.blocks, block)
            printed = self._python(block)
            if shown is not None:
                assert lasting(printed.replace(self._topic, "orders")) == lasting(shown)

    def _python(self, block):
        theirs = LIBRDKAFKAS.replace("localhost:9092", self._broker.bootstrap)
        text = block.code.replace(ADDRESS, "**CONFIG").replace(LIBRDKAFKAS, theirs)
        if "localhost:9092" in block.code:
            text = re.sub(r"""(["':])orders\b""", rf"\1{self._topic}", text)
            text = text.replace('"billing"', f'"g-{self._topic}"')
        if "\ndef test_" in text:
            return self._tests(text)
        if block.is_file:
            exec(compile(text, str(block.page), "exec"), self._names)  # noqa: S102 - our own text
            return ""
        return Pasting(self._names, block).paste(text)

    def _tests(self, text):
        file = Path("test_of_the_page.py")
        file.write_text(text, "utf-8")
        ended = ran_python("-m", "pytest", "-q", "-p", "no:cacheprovider", file)
        assert ended.returncode == 0, ended.stdout
        return ""

    def _command(self, command):
        name, *arguments = shlex.split(command)
        if name == "export":
            return ""
        assert name == "safeconsumer"
        broker = self._names.get("broker", self._broker)
        env = {"SAFECONSUMER_BOOTSTRAP": broker.bootstrap}
        env["SAFECONSUMER_OWNER"] = "alice"
        return CliRunner().invoke(safeconsumer, arguments, env=env).output
