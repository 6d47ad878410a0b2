"""
Tries typical queries on the search page of the built site.

The module runs the site's own search scripts in Node.js. Without Node.js it does
nothing.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

_SCRIPTS = ("base-stemmer", "english-stemmer", "language_data", "searchtools")
_GUIDE = re.compile(r"(tutorials|how-to|explanation)/")
_DESIGN = re.compile(r"generated/design/")

# Queries, each with the page that must be the first result.
FIRST = {
    "KAFKA-13463": "explanation/holds-and-owners",
    "kafka-13463": "explanation/holds-and-owners",
    "KIP-848": "explanation/kip-848",
    "commit in a rebalance listener": "how-to/rebalance-listeners",
    "reset offsets": "how-to/reset-offsets",
}
# Queries that match both guides and design pages; all guides must come before the
# design pages.
BOTH = ("rebalance listener", "assignment", "lag", *FIRST)

# These objects replace the parts of a browser that the scripts use.
_SEARCH = """
const document = {getElementById: () => null, addEventListener: () => null};
const window = globalThis, localStorage = {setItem: () => null};
const SPHINX_HIGHLIGHT_ENABLED = false, _ready = () => null, _ = (text) => text;
%s
console.log(JSON.stringify(%s.map((query) => [query, Search._performSearch(
    ...Search._parseQuery(query)).reverse().map((found) => found[0])])));
"""


def main(site):
    node = shutil.which("node")
    if node is None:
        sys.stdout.write("NOT TRIED: the site's search, for want of node\n")
        return 0
    faults = list(findings(pages_by_query(node, Path(site))))
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    return 1 if faults else 0


def pages_by_query(node, site):
    files = [site / "_static" / f"{name}.js" for name in _SCRIPTS]
    scripts = [one.read_text("utf-8") for one in (*files, site / "searchindex.js")]
    program = _SEARCH % ("\n".join(scripts), json.dumps(BOTH))
    ended = subprocess.run(  # noqa: S603 - our own program
        [node, "-"], input=program, capture_output=True, check=True, text=True
    )
    return dict(json.loads(ended.stdout))


def findings(pages):
    """Yield a fault for each query that does not find the right pages first."""
    for query, found in pages.items():
        right = FIRST.get(query)
        if right is not None and found[:1] != [right]:
            yield f"{query}: finds {found[:3]}, not first {right}"
        designs = [at for at, page in enumerate(found) if _DESIGN.match(page)]
        guides = [at for at, page in enumerate(found) if _GUIDE.match(page)]
        if guides and designs and min(designs) < max(guides):
            yield f"{query}: {found[min(designs)]} before {found[max(guides)]}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
