"""
Finds the most common mistakes in the English of pages, docstrings, comments and names.

On pages the linter skips code, tables, headings and comments. The linter reports a
missing verb if no word of a sentence can be a verb. This rule gives few false alarms,
but misses some fragments. In docstrings the linter checks only phrases and the first
line of a module, because the description of a class or an attribute may lack a verb.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

from tests.harness.docs.pages import ROOT

_GENERATED = ROOT / "docs" / "generated"

# Phrases that nobody would say aloud, each with a better one.
PHRASES = {
    r"(?<!there )(?:is|are|was|were) none": "there is no ..., or `None`",
    r"said of": "a ... is called",
    r"told": "reported, described, known",
    r"roused": "woken",
}

# Phrases to avoid in docstrings; this list is longer than the list for pages.
DOCSTRING_PHRASES = {
    r"(?<!there )(?:is|are|was|were) none": "there is no ..., or ``None``",
    r"said of": "a ... is called, or is reported",
    r"told": "reported, described, known",
    r"roused": "woken",
    r"whoever": "the caller, the owner, the member that ...",
    r"heard of": "known, reported, read",
    r"tells? of": "reports",
    r"let go of": "dropped, freed, released",
    r"anew": "again",
    r"becomes? of": "happens to",
    r"is no good": "is not acceptable",
}
# Names and commit subjects must not contain these words, which do not say what a
# program does.
ODD_WORDS = re.compile(
    r"(?:\b|_)(told|untold|heard|roused|anew|whoever|news|loud|wish|stint|bites?|bared)"
    r"(?:\b|_)"
)
_NAMELESS_TEST = re.compile(r"test_(?:what|who|whose|nobody|nothing|it|there)_")
# A module's docstring must not begin with these words, because its first line says what
# the module does.
_RIDDLE = re.compile(r"(?:What|Whether|Where|When|Which|Who|How)\b")
_NAME = re.compile(r"^ *\w+: ", re.MULTILINE)
# A docstring section that has an entry for each name; continuation lines are indented.
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?: {4}.+\n?)+)", re.MULTILINE)
_UNINDENTED = re.compile(r"^ {4}(?!\*{0,2}\w+:(?: |$))(?! ).+", re.MULTILINE)
_PYTHON_CODE = re.compile(r":\w+:`[^`]*`|``[^`]*``")

_FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1", re.DOTALL)
_BLOCK_START = re.compile(r"^\s*(?:[-*+]|\d+\.) ")
# A few words and a colon, such as "See also: ".
_LABEL = re.compile(r"(?:\w+ ){0,3}\w+: ")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z*_(])")

# Verbs that do not end in "s" or "ed", and words that are verbs at the start of a
# sentence but may be nouns elsewhere.
_VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        add am are ask be been begin build call can change choose come compare copy cost
        could deploy did do does fail fell find follow found gave get give go got had
        happen has have help hold install is join keep knew know leave left let lie lost
        made make may means might move must need open pass pause press prove put ran
        read remember replace resume return run said sat save saw say see seem send set
        shall should show stand start stay stood stop take tell think took trust try
        turn use wait want was were will won work would write wrote
        """,
    )
)
_BEGINNINGS = frozenset(
    ("delete", "lift", "look", "measure", "name", "paste", "place", "print", "watch")
)
_MAY_BE_VERB = re.compile(r"\w{2,}(?:s|ed)$|\w+n't$")
_FEWEST_WORDS = 3


def findings():
    """Yield the faults in the README, the contract, the pages, the package and its tests."""
    for file in _files():
        find = source_faults if file.suffix == ".py" else faults
        for fault in find(file.read_text("utf-8")):
            yield f"{file.relative_to(ROOT)}: {fault}"


def _files():
    pages = (
        one for one in (ROOT / "docs").rglob("*.md") if _GENERATED not in one.parents
    )
    modules = {
        one for top in ("safeconsumer", "tests") for one in (ROOT / top).rglob("*.py")
    }
    # This module and its test contain the phrases that they find.
    modules -= {Path(__file__), ROOT / "tests" / "unit" / "test_lint.py"}
    contract = ROOT / "design" / "contract.md"
    return [ROOT / "README.md", contract, *sorted(pages), *sorted(modules)]


def faults(text):
    """Yield each fault on a page, with the sentence that has the fault."""
    for sentence in sentences(text):
        for phrase, better in PHRASES.items():
            found = re.search(rf"\b{phrase}\b", sentence, re.IGNORECASE)
            if found is not None:
                yield f"{found[0]!r}, write {better}: {sentence}"
        if not has_verb(sentence):
            yield f"no verb: {sentence}"


def source_faults(source):
    """Yield each fault in the docstrings, comments and names of a Python file."""
    yield from docstring_faults(source)
    yield from comment_faults(source)
    yield from name_faults(source)


def comment_faults(source):
    """Yield each odd phrase in the comments of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _phrase_faults(_PYTHON_CODE.sub("`x`", token.string))


def name_faults(source):
    """Yield each odd name that a Python file gives to a function, class or variable."""
    nodes = ast.walk(ast.parse(source))
    for name in sorted({name for node in nodes for name in _given(node)}):
        if _NAMELESS_TEST.match(name):
            yield f"name the case and the result: {name}"
        elif found := ODD_WORDS.search(name):
            yield f"name with {found[1]!r}: {name}"


def _given(node):
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.arg():
            yield node.arg
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name


def docstring_faults(source):
    """Yield each fault in a Python file's docstrings, with the sentence that has it."""
    for text, is_of_module in docstrings(source):
        if is_of_module and _RIDDLE.match(text):
            yield f"say what the module does: {text.splitlines()[0]}"
        for section in _SECTION.findall(text):
            for line in _UNINDENTED.findall(section):
                yield f"indent it, or the reference loses it: {line.strip()}"
        bare = " ".join(_PYTHON_CODE.sub("`x`", _NAME.sub("", text)).split())
        for sentence in _SENTENCE.split(bare):
            yield from _phrase_faults(sentence[:1].lower() + sentence[1:])


def _phrase_faults(text):
    for phrase, better in DOCSTRING_PHRASES.items():
        # The spelling counts: ``None`` is Python's.
        found = re.search(rf"\b{phrase}\b", text)
        if found is not None:
            yield f"{found[0]!r}, write {better}: {text}"


def docstrings(source):
    """Yield each docstring of a Python file, and whether it belongs to the module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            text = ast.get_docstring(node)
            if text is not None:
                yield text, isinstance(node, ast.Module)


def sentences(text):
    """Yield the sentences of a page's running text and lists, each as one line."""
    bare = _LINK.sub(r"\1", _COMMENT.sub("", _FENCE.sub("", text)))
    for block in re.split(r"\n\s*\n", _blocks(bare)):
        line = " ".join(_CODE.sub("`x`", block).split())
        yield from (part for part in _SENTENCE.split(line) if part)


def _blocks(text):
    # Makes each list item a block of its own; drops tables, headings and quotations.
    lines = (line for line in text.splitlines() if not re.match(r"\s*(\||#|>)", line))
    return "\n".join(
        f"\n{_BLOCK_START.sub('', line)}" if _BLOCK_START.match(line) else line
        for line in lines
    )


def has_verb(sentence):
    """Return whether a text has a word that may be a verb, or is not a sentence."""
    if not sentence.endswith(".") or _LABEL.match(sentence):
        return True
    words = re.findall(r"`x`|[A-Za-z']+", sentence.lower())
    if len([one for one in words if one != "`x`"]) < _FEWEST_WORDS:
        return True
    first, *rest = words
    return first in _VERBS | _BEGINNINGS or any(
        word in _VERBS or _MAY_BE_VERB.fullmatch(word) is not None for word in rest
    )
