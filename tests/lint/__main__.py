"""
``python -m tests.lint``: finds errors and odd wording in pages, sources and commits.

The program prints all findings; its exit status is 1 if it has found any.
"""

import sys

from tests.lint import examples, figures, history, names, prose


def findings():
    """Yield the findings of all linters."""
    for part in (prose, names, examples, figures, history):
        yield from part.findings()


if __name__ == "__main__":
    found = list(findings())
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
