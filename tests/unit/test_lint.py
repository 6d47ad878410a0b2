"""The lint finds planted faults in pages, docstrings, commits and names."""

import pytest
from attrs import evolve

from tests.harness.docs.pages import ROOT, Block
from tests.lint import examples, history, names, prose, site

BLOCK = Block(
    page=ROOT / "README.md",
    line=1,
    language="console",
    code="$ safeconsumer demo\n",
    why_not=None,
    run_by=None,
)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("The topic is none.", 1),
        ("- Late by one look.", 1),
        ("It waits.\nBounded by time, never by luck.\n", 1),
        ("There is none. Call `told` once. | what | Late by one look. |", 0),
        ("# Late by one look.\n```text\nIt is told.\n```\n<!-- It is told. -->", 0),
    ],
)
def test_pages_with_odd_words_or_without_a_verb_are_found(text, faults):
    assert len(list(prose.faults(text))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("What becomes of results.", 2),
        ("Reads.\n\nArgs:\n    low: less than\n    1.\n", 1),
        ("Reads a topic; it is None if there is none.", 0),
    ],
)
def test_docstrings_with_odd_words_are_found(text, faults):
    assert len(list(prose.docstring_faults(f'"""\n{text}\n"""\n'))) == faults


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({}, 0),
        ({"language": "java"}, 1),
        ({"language": "java", "why_not": "it is no Python"}, 0),
        ({"run_by": "tests/unit/test_gone.py"}, 1),
        ({"code": "$ safeconsumer demoo\n$ safeconsumer demo --loud\n"}, 2),
    ],
)
def test_code_blocks_that_no_test_runs_are_found(change, faults):
    assert len(list(examples.faults(evolve(BLOCK, **change)))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("word " * 120 + "\n<!-- not run: a difference -->\n```diff", 0),
        ("word " * 121 + "```diff" + "word " * 200, 1),
        ("```diff" + "words" * 1200, 1),
    ],
    ids=["short", "late", "long"],
)
def test_long_readme_is_found(text, faults):
    assert len(list(examples.readme_faults(text))) == faults


def test_names_of_missing_files_are_found(tmp_path):
    text = "See `unit/test_gone`, `tests/unit/test_lint.py`; python -m tests.gone"
    assert list(names.lost(text)) == ["tests/unit/test_gone", "tests.gone"]
    page = tmp_path / "page.md"
    assert list(names.links(page, "[a](gone.md), [b](https://x), [c](#d)")) == [
        "gone.md"
    ]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("`python -m tests.bench speed` measures it.", 1),
        ("`python -m tests.bench speed` (extra `ci`) measures it.", 0),
        ("`python -m tests.bench throughput` (extra `ci`) measures it.", 1),
        ("The site: `sphinx-build docs build/site`.", 1),
        ("The site: `pip install '.[docs]'`, `sphinx-build docs build/site`.", 0),
        ("Type `safeconsumer pause --group g orders`.", 0),
        ("Type `safeconsumer pause --groop g orders`.", 1),
        ("```console\n$ python -m tests.bench speed\n```", 0),
    ],
)
def test_inline_command_must_work_or_name_the_extra_that_it_needs(text, faults):
    assert len(list(examples.inline_faults(text))) == faults


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (["explanation/holds-and-owners", "generated/settings"], 0),
        (["generated/settings", "explanation/holds-and-owners"], 1),
        (["explanation/holds-and-owners", "generated/design/joins", "how-to/index"], 1),
    ],
    ids=["right", "not first", "a guide after design"],
)
def test_search_that_ranks_the_wrong_page_first_is_found(found, faults):
    assert len(list(site.findings({"KAFKA-13463": found}))) == faults


@pytest.mark.parametrize(
    ("subject", "faults"),
    [
        ("fetcher: drop parked data on seek", 0),
        ("wip: a table", 0),
        ("What pages say is so", 1),
        ("cli: say what was told", 1),
        (f"cli: {'x' * 70}", 1),
    ],
)
def test_bad_commit_subjects_are_found(subject, faults):
    assert len(list(history.subject_faults([subject]))) == faults


@pytest.mark.parametrize(
    ("find", "source", "faults"),
    [
        (prose.name_faults, "def test_pause_is_reported_once(): pass", 0),
        (prose.name_faults, "def test_what_is_quiet(): pass", 1),
        (prose.name_faults, "def test_a_loss_is_told(): pass", 1),
        (prose.name_faults, "self.is_heard = loud = [news for one in told]", 2),
        (prose.name_faults, "def f(wish, /): return told", 1),
        (prose.comment_faults, "x = 1  # the caller is told", 1),
        (prose.comment_faults, "x = 1  # ``told`` is reported\ny = 'anew'", 0),
    ],
)
def test_odd_names_and_comments_are_found(find, source, faults):
    assert len(list(find(source))) == faults
