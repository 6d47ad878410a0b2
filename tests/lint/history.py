"""
Finds oddly worded subjects of commits that are not on main yet.

The list of words is short and enforces only a part of CONTRIBUTING's rule that the
subject of a sentence is a thing with a name, and the verb is what that thing does.
"""

import re
import shutil
import subprocess

from tests.harness.docs.pages import ROOT
from tests.lint.prose import ODD_WORDS

_LENGTH = 72
_PACKAGE = re.compile(r"[\w./, -]+: \S")
_UNFINISHED = re.compile(r"wip\b", re.IGNORECASE)


def findings():
    """Yield the faults in the commits that the checkout adds to main."""
    base = next(filter(None, map(_known, ("origin/main", "main"))), None)
    if base is not None:
        subjects = _git("log", "--no-merges", "--format=%s", f"{base}..HEAD")
        yield from subject_faults((subjects or "").splitlines())


def subject_faults(subjects):
    """Yield a fault for each oddly worded, overlong or unprefixed commit subject."""
    for one in subjects:
        if len(one) > _LENGTH:
            yield f"commit of over {_LENGTH} characters: {one}"
        if not _PACKAGE.match(one) and not _UNFINISHED.match(one):
            yield f"commit without its package in front: {one}"
        if found := ODD_WORDS.search(one):
            yield f"commit with {found[1]!r}: {one}"


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
