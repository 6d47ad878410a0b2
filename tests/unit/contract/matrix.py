"""
Reads the tests that prove each promise of ``design/contract.md``.

A test names its promises in ``@pytest.mark.contract("P7")``. The module reads the marks
from the source code, so the result does not depend on the available brokers. Each
promise has a proof in the simulated world, where every seed can be replayed, and a real
proof, on sockets and brokers; ``EXCEPTIONS`` lists the other promises, with the
reasons.

A test marked ``nightly`` or ``xfail`` is not a proof: the former runs only at night, and
the latter fails. The page's section "not promised" names each failing test.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONTRACT = ROOT / "design" / "contract.md"

# Promises about speed. A test on a busy machine would prove nothing, so they are
# measured by hand, and the figures are in design/benchmarks.md.
MEASURED = {
    "P15": "The time per record is measured: `python -m tests.bench overhead`.",
    "S6": "It is measured, and no test asserts it: `python -m tests.bench spark`.",
}

# The test tiers, each with the folders that belong to it.
TIERS = {
    "pure": "tests/unit/",
    "simulated": "tests/sim/",
    "real": "tests/(broker|system)/",
}

# The test tiers in which a promise needs a proof; the first letter of its id is the key.
DEMANDED = {
    "P": ("simulated", "real"),
    "G": ("simulated", "real"),
    "W": ("simulated", "real"),
    "S": ("real",),  # Spark runs in a JVM, which no world can simulate
}

# Each row has a promise, a tier without a proof, the tier that has the proof instead, and
# the reason.
EXCEPTIONS = (
    (
        *("P15", "simulated", "pure"),
        "what is decoded depends on bytes alone, and no time passes in a decoder",
    ),
    (
        *("G9", "simulated", "pure"),
        "librdkafka has threads and sockets of its own, in C, which no world can play",
    ),
)

_PROMISE = re.compile(r"^### ([A-Z]\d+): (.+)$", re.MULTILINE)


def promises():
    return dict(_PROMISE.findall(CONTRACT.read_text(encoding="utf-8")))


def proofs():
    """Return, for each promise, the pytest ids of the tests that prove it."""
    return _proofs_and_breaches()[0]


def breaches():
    """Return the names of the failing tests of promises, each with its file."""
    return _proofs_and_breaches()[1]


@cache
def _proofs_and_breaches():
    # The trees are not kept, because each later run of the garbage collector would scan
    # their nodes.
    proved, failing = {}, {}
    for file, tree in _trees():
        for name, ids in marked(tree):
            for one in ids:
                proved.setdefault(one, []).append(f"{file}::{name}")
        failing.update(dict.fromkeys(broken(tree), file))
    return proved, failing


def _trees():
    texts = {
        file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    marks = "pytest.mark.contract"
    return ((file, ast.parse(text)) for file, text in texts.items() if marks in text)


def not_promised():
    """Return the page's section about guarantees that the contract does not give."""
    text = CONTRACT.read_text(encoding="utf-8")
    return text.partition("\n## N: ")[2].partition("\n## ")[0]


def marked(tree):
    """Yield each test of a file that counts as a proof, with the ids of its promises."""
    for name, marks in _marks(tree):
        ids = _ids(marks)
        if ids is not None and not any(map(_NO_PROOF.match, map(ast.unparse, marks))):
            yield name, ids


def broken(tree):
    """Yield the tests of promises in a file that are marked as expected to fail."""
    for name, marks in _marks(tree):
        fails = any(map(_FAILS.match, map(ast.unparse, marks)))
        if fails and _ids(marks) is not None:
            yield name


def _ids(marks):
    for one in marks:
        if (
            isinstance(one, ast.Call)
            and ast.unparse(one.func) == "pytest.mark.contract"
        ):
            return [ast.literal_eval(value) for value in one.args]
    return None


def _marks(tree):
    named = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    whole = named.get("pytestmark", ast.List([]))
    of_all = whole.elts if isinstance(whole, ast.List) else [whole]
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        own = (*node.decorator_list, *of_all)
        yield node.name, [named.get(ast.unparse(one), one) for one in own]


_FAILS = re.compile(r"pytest\.mark\.xfail\b")
_NO_PROOF = re.compile(r"pytest\.mark\.(nightly|xfail|skip)\b")


def proofs_in(tier, promise):
    """Return the tests in one tier that prove a promise."""
    where = re.compile(TIERS[tier])
    return [test for test in proofs().get(promise, ()) if where.match(test)]


def missing():
    """Return each promise with a tier in which its required proof is missing."""
    return {
        (one, tier)
        for one in promises()
        for tier in DEMANDED[one[0]]
        if not proofs_in(tier, one)
    }


_HEAD = """# The contract and its tests

Each promise of [the contract](design/contract.md), and the tests that are marked as proofs of it: pure ones, simulated ones, and those with real sockets, brokers and processes. Others prove parts of it, too.

| id | promise | pure | simulated | real |
|---|---|---|---|---|
"""  # noqa: E501 - one sentence, one line


def page():
    rows = []
    for one, title in promises().items():
        cells = [_cell(tier, one) for tier in TIERS]
        if one in MEASURED:
            cells[-1] = "<br>".join(filter(None, (cells[-1], MEASURED[one])))
        rows.append(f"| {one} | {title} | {' | '.join(cells)} |")
    return _HEAD + "\n".join(rows) + "\n"


def _cell(tier, promise):
    parts = [f"`{name}`" for name in proofs_in(tier, promise)]
    parts += [
        f"none: {why}"
        for one, without, _, why in EXCEPTIONS
        if (one, without) == (promise, tier)
    ]
    return "<br>".join(parts)
