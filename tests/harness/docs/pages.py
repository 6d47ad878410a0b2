"""
Finds the code blocks in the README and ``docs``, and the tests that run them.

The module also finds commands in prose.
"""

import re
from itertools import takewhile
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[3]
FOLDERS = ("tutorials", "how-to", "explanation")
PAGES = (
    ROOT / "README.md",
    *sorted(page for one in FOLDERS for page in (ROOT / "docs" / one).glob("*.md")),
)
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_REMARK = re.compile(
    r"<!-- (not run|run by|file): ((?:(?!-->).)+?) -->\n*\Z", re.DOTALL
)


@frozen
class Block:
    page: Path  # the block's file
    line: int  # the number, from 1, of its first line of code
    language: str  # the language of its fence
    code: str  # the code without the fences
    why_not: str | None  # why no test runs the block; None if a test runs it
    run_by: str | None  # the path of the test that runs it, if not ``test_pages``
    is_file: bool = False  # whether the reader is to save the block as a file

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_run_here(self):
        return self.why_not is None and self.run_by is None

    @property
    def commands(self):
        """The commands that follow a ``$``; continued lines are joined."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [line[2:] for line in lines if line.startswith("$ ")]


def blocks(page):
    """Return the code blocks of a page in order, except Sphinx directives."""
    return list(_blocks(page, page.read_text("utf-8")))


def _blocks(page, text):
    for found in _FENCE.finditer(text):
        indent, language, code = found.groups()
        if language.startswith("{"):
            continue
        remark = _REMARK.search(text[: found.start()])
        kind, remark_text = remark.groups() if remark else (None, None)
        yield Block(
            page=page,
            line=text.count("\n", 0, found.start(3)) + 1,
            language=language,
            code=re.sub(f"^{indent}", "", code, flags=re.MULTILINE),
            why_not=remark_text if kind == "not run" else None,
            run_by=remark_text if kind == "run by" else None,
            is_file=kind == "file",
        )


def inline(text):
    """Yield each text between backticks in a page's prose, with the line that contains it."""
    for line in _FENCE.sub("", text).splitlines():
        for code in _INLINE.findall(line):
            yield code, line


def spark_examples():
    """Return the blocks that need a Spark session, which ``tests/system/spark`` runs."""
    return [
        block
        for page in PAGES
        for block in blocks(page)
        if block.language == "python"
        and block.run_by == "tests/system/spark/test_readme.py"
    ]


def spark_example(name):
    """Return the only Spark example of a page."""
    (found,) = (one for one in spark_examples() if one.page.name == name)
    return found


def printed_after(these, block):
    """Return the output that the page shows for a block, in the ``text`` block after it."""
    rest = these[these.index(block) + 1 :]
    shown = [one.code for one in takewhile(lambda one: one.language == "text", rest)]
    return shown[0] if shown else None
