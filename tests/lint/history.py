"""
Finds odd commit subjects and odd test names that are not on main yet.

The list of words is short, and covers only a part of CONTRIBUTING's rule: the subject
of a sentence is a thing with a name, and the verb is what that thing does.
"""

import re
import shutil
import subprocess

from tests.harness.docs.pages import ROOT

_LENGTH = 72
_PACKAGE = re.compile(r"[\w./, -]+: \S")
_UNFINISHED = re.compile(r"wip\b", re.IGNORECASE)
# These words do not describe a program, so neither a commit subject nor a test name may
# contain them.
_WORDS = re.compile(r"(?:\b|_)(told|untold|heard|roused|anew|whoever)(?:\b|_)")
_RIDDLE = re.compile(r"test_(?:what|who|whose|nobody|nothing|it|there)_")
_NEW_TEST = re.compile(r"^\+\s*(?:async )?def (test_\w+)", re.MULTILINE)


def findings():
    """Yield the faults of commits and tests that the checkout adds to main."""
    base = next(filter(None, map(_known, ("origin/main", "main"))), None)
    if base is not None:
        subjects = _git("log", "--no-merges", "--format=%s", f"{base}..HEAD")
        added = _git("diff", "--unified=0", f"{base}...HEAD", "--", "tests")
        yield from subject_faults((subjects or "").splitlines())
        yield from name_faults(_NEW_TEST.findall(added or ""))


def subject_faults(subjects):
    """Yield a fault for each odd commit subject."""
    for one in subjects:
        if len(one) > _LENGTH:
            yield f"commit of over {_LENGTH} characters: {one}"
        if not _PACKAGE.match(one) and not _UNFINISHED.match(one):
            yield f"commit without its package in front: {one}"
        if found := _WORDS.search(one):
            yield f"commit with {found[1]!r}: {one}"


def name_faults(names):
    """Yield a fault for each odd test name."""
    for one in names:
        if _RIDDLE.match(one):
            yield f"name the case and the result: {one}"
        elif found := _WORDS.search(one):
            yield f"test with {found[1]!r}: {one}"


def _known(name):
    return (_git("rev-parse", "--verify", "--quiet", name) or "").strip() or None


def _git(*arguments):
    git = shutil.which("git")
    if git is None:
        return None
    ended = subprocess.run(  # noqa: S603 - our own arguments
        [git, *arguments], cwd=ROOT, capture_output=True, check=False, text=True
    )
    return ended.stdout if ended.returncode == 0 else None
