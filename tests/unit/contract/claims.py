"""
Reads ``claims.toml``, which lists sentences about other clients with their proofs.

For each page and client, a table maps sentences to their proofs.

A sentence or a table row is on the list if it names a client, or if it belongs to a
table that compares clients. Most entries are claims about the client, each with a proof.
The other entries only name the client (``mentions``). The list omits figures, which
programs write into pages (``FIGURES``), and the design pages' prose about the internals
of kafka-python (``TABLES_ONLY``).
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

from attrs import frozen

from tests.harness.docs.pages import ROOT
from tests.harness.testing.catalogue import CASES

LIST = Path(__file__).with_name("claims.toml")
PAGES = (
    "README.md",
    *sorted(
        str(page.relative_to(ROOT))
        for folder in ("docs", "design")
        for page in (ROOT / folder).rglob("*.md")
        if "generated" not in page.parts  # copies of pages, made when the site is built
    ),
)

# Pages with measured figures; each page names the program that measures them.
FIGURES = {"design/benchmarks.md", "design/conformance.md"}

# Pages about kafka-python's internals and about our promises. Of these pages, the list
# has only the tables that compare clients, and the tables of kafka-python's defects.
# ``test_private_names`` checks the names in their prose, ``test_matrix`` the promises.
TABLES_ONLY = {
    f"design/{name}.md"
    for name in (
        *("README", "architecture", "contract", "decoding", "group", "joins"),
        *("metrics", "pausing", "releases", "security", "spark", "tests", "worker"),
    )
}
_GENERATED = re.compile(r"<!-- speed: .*?<!-- speed -->", re.DOTALL)
_MEASURED = re.compile(
    r"^\|(?:[^|]*\|)? *(?:\d+ of \d+|n/a)|^\d{4}-\d\d-\d\d, |^\|[ -]+\|[ |-]*$"
)

_CLIENT = re.compile(
    r"(kafka-python)(?!>=)|(aiokafka)|(confluent-kafka)|(librdkafka)"
    r"|(Java(?:'s)? (?:client|consumer))|\b([Ss]tock|[Uu]pstream)\b"
)
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"<!--.*?-->", re.DOTALL)
_HEAD = re.compile(
    r"^\|[^|]*\|\s*((with )?kafka-python[ \d.]*|2\.3)\s*\|"
    r"|^\| (?:it|kafka-python) \|(?: (?:seen|observed) \|)? (?:here|`SafeConsumer`) \|$"
)
_END = re.compile(r"(?<=[.:;!?])\s+(?=[A-Z`*\[(])")

# Patterns that show which client a test module runs.
_PLAYS = {
    "kafka-python": r"\bKafkaConsumer\b|stock_fails|\"[sS]tock\"|\bSTOCK\b|import kafka\b",
    "aiokafka": r"import aiokafka",
    "confluent-kafka": r"import confluent_kafka",
    "librdkafka": r"import confluent_kafka",
}


@frozen
class Claim:
    """
    A claim that a page makes about a client.

    Attributes:
        page: the page that contains the sentence.
        text: a part of the sentence or of the table row, which occurs only once.
        client: the client that the sentence is about.
        proof: tests as ``path::name``; cases as ``case:name``; for a figure the program
            that measures it as ``bench:name``; or a statement of the client's
            maintainers, as a URL, which the page must contain, too.
    """

    page: str
    text: str
    client: str
    proof: tuple[str, ...]


@cache
def _listed():
    return tomllib.loads(LIST.read_text("utf-8"))


def claims():
    return [
        Claim(page, text, client, tuple(proof))
        for page, by_client in _listed().items()
        for client, claimed in by_client.items()
        if client != "mentions"
        for text, proof in claimed.items()
    ]


def mentions(page):
    """Return a page's ``mentions``: parts of sentences that only name a client."""
    return _listed().get(page, {}).get("mentions", [])


def sentences(page):
    """Yield the sentences and table rows on a page that are about clients."""
    text = (ROOT / page).read_text("utf-8")
    for rubbish in (_GENERATED, _FENCE, _REMARK):
        text = rubbish.sub("", text)
    is_comparing = False
    for line in text.splitlines():
        one = line.strip()
        if _MEASURED.match(one):
            continue
        if not one.startswith("|"):
            is_comparing = False
            if page not in TABLES_ONLY and not one.startswith("#"):
                yield from filter(_CLIENT.search, _END.split(one))
        elif _HEAD.search(one):
            is_comparing = True
        elif is_comparing or (page not in TABLES_ONLY and _CLIENT.search(one)):
            yield one


def misfits():
    """Yield each difference between the list and the pages."""
    for page in PAGES:
        if page in FIGURES:
            continue
        parts = [one.text for one in claims() if one.page == page] + mentions(page)
        found = list(sentences(page))
        for one in found:
            if not any(part in one for part in parts):
                yield f"{page}: not on the list: {one}"
        for part in parts:
            if not any(part in one for one in found):
                yield f"{page}: no such sentence any more: {part}"


def unproved():
    """Yield each claim without a proof, and each proof that does not run its client."""
    for one in claims():
        if not one.proof:
            yield f"{one.page}: no proof: {one.text}"
        for proof in one.proof:
            if why := _why_not(one, proof):
                yield f"{one.page}: {proof}: {why}: {one.text}"


def _why_not(claim, proof):
    if proof.startswith("https://"):
        is_there = proof in (ROOT / claim.page).read_text("utf-8")
        return None if is_there else "the page does not link to it"
    if proof.startswith("case:"):
        case = CASES.get(proof.removeprefix("case:"))
        if case is None:
            return "there is no such case"
        return None if claim.client in str(case.run.__doc__) else "not about it"
    if proof.startswith("bench:"):
        path = ROOT / "tests" / "bench" / f"{proof.removeprefix('bench:')}.py"
        return None if path.is_file() else "there is no such program"
    path, _, name = proof.partition("::")
    if not (ROOT / path).is_file() or name not in _tests(path):
        return "there is no such test"
    source = (ROOT / path).read_text("utf-8")
    return None if re.search(_PLAYS[claim.client], source) else "does not play it"


@cache
def _tests(path):
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(
        one.name
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    )
