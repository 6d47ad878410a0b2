"""
``python -m tests.lint``: wrong and odd statements of README, pages, sources and commits.

Prints every finding; exit status 1 if there are any.
"""

import sys

from tests.lint import examples, figures, history, names, prose


def findings():
    """Yield the findings of all parts."""
    for part in (prose, names, examples, figures, history):
        yield from part.findings()


if __name__ == "__main__":
    found = list(findings())
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
