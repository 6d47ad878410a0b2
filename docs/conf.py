"""Configures Sphinx, which builds the site: ``sphinx-build -W -n docs build/site``."""

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import kafka.errors
from sphinx.search.en import SearchEnglish
from sphinx.util.nodes import make_refnode

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generated_pages  # noqa: E402 - it is in this folder

generated_pages.write(HERE / "generated")

project = "safeconsumer"
author = "the authors of safeconsumer"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx's
version = release = version_of("safeconsumer")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# The documentation of Python and of other packages is not available to the build.
_ELSEWHERE = (
    "attrs?|collections|contextlib|datetime|enum|kafka|os|pathlib|pyspark|re|types"
    "|typing"
)
nitpick_ignore_regex = [(r"py:.*", rf"({_ELSEWHERE})\..*")]
nitpick_ignore = [
    *(("py:exc", name) for name in dir(kafka.errors)),
    ("py:class", "optional"),  # kafka-python writes "timeout (int, optional)"
    ("py:class", "TopicPartition"),
    # of the judge: how-to/audit.md
    ("py:class", "safeconsumer.audit.results.Settings"),
    ("py:class", "CompiledPattern"),  # common to re's and google-re2's patterns
    ("py:class", "safeconsumer.holds.scope.CompiledPattern"),
    ("py:class", "safeconsumer.worker.revocation.Revocation"),  # of Context
    ("py:class", "safeconsumer.worker.records.K_co"),  # of Record[key, value]
    ("py:class", "safeconsumer.worker.records.V_co"),
    ("py:class", "safeconsumer.clients.member.OtherPartition"),  # of Consumer.pause
    ("py:exc", "KafkaException"),  # confluent-kafka's
]

html_theme = "furo"
html_title = "safeconsumer"
html_search_scorer = str(HERE / "search.js")
smartquotes = False  # --option is two hyphens
copybutton_prompt_text = "$ "


# Methods that only other parts of this package call.
_INSIDE = frozenset({"attach", "bridge"})
_ROOMS = (
    "safeconsumer",
    "safeconsumer.errors",
    "safeconsumer.events",
    "safeconsumer.holds",
    "safeconsumer.metrics",
    "safeconsumer.spark",
    "safeconsumer.testing",
    "safeconsumer.worker",
)


def _by_public_name(app: Any, env: Any, node: Any, contnode: Any) -> Any:  # noqa: ANN401 - Sphinx's
    """Link ``safeconsumer.holds.hold.Lifetime`` or ``Lifetime`` to its public name."""
    target = node.get("reftarget", "")
    name = target if target[:1].isupper() else target.rpartition(".")[2]
    objects = env.get_domain("py").objects
    for room in _ROOMS:
        found = objects.get(f"{room}.{name}")
        if found is not None:
            place = found.docname, found.node_id
            return make_refnode(app.builder, node["refdoc"], *place, contnode)
    return None


_REQUIRED = "**Required**"  # sphinx-click's own


def _plain(_app: Any, _ctx: Any, lines: list[str]) -> None:  # noqa: ANN401 - Sphinx's
    """Escape help texts: keep ``ssl.*`` from becoming emphasis, and ``a@b`` an address."""
    lines[:] = [
        line
        if line.lstrip().startswith("..")
        else line.replace("*", "\\*")
        .replace("@", "\\@")
        .replace(_REQUIRED.replace("*", "\\*"), _REQUIRED)
        for line in lines
    ]


def _to_design(_app: Any, page: str, source: list[str]) -> None:  # noqa: ANN401 - Sphinx's
    """Adapt links to design pages, which are written for the repository, to the site."""
    source[0] = source[0].replace("](../../design/", "](../generated/design/")
    if page == "generated/CHANGELOG":
        source[0] = source[0].replace("](docs/", "](../")
    if page == "releasing":  # this page is one folder up
        for name in ("design/", "CHANGELOG.md"):
            source[0] = source[0].replace(f"](../{name}", f"](generated/{name}")


def _without_inside(*about: Any) -> bool | None:  # noqa: ANN401 - Sphinx's
    """Leave out methods that only other parts of this package call."""
    _app, _what, name, _found, skips, _options = about
    return skips or name in _INSIDE or None


class _WithIssues(SearchEnglish):
    """Indexes ``KAFKA-13463`` and ``KIP-848`` as one word; Sphinx drops numbers."""

    js_splitter_code = (
        "function splitQuery(query) {\n"
        "  return query.match(/[a-z]+-\\d+|[\\p{Letter}\\p{Number}_]+/giu) ?? [];\n"
        "}\n"
    )

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx's
        """Return the words, and also each issue's whole name, such as KAFKA-13463."""
        return [*super().split(input), *re.findall(r"\b[A-Za-z]+-\d+\b", input)]


def setup(app: Any) -> None:  # noqa: ANN401 - Sphinx's
    """Register the classes and functions of this file with Sphinx."""
    app.add_search_language(_WithIssues)
    app.connect("source-read", _to_design)
    app.connect("missing-reference", _by_public_name)
    app.connect("sphinx-click-process-description", _plain)
    app.connect("sphinx-click-process-options", _plain)
    app.connect("autodoc-skip-member", _without_inside)
