"""The pages are written in sentences that a colleague would say aloud."""

from pathlib import Path

import pytest

from tests.unit.docs.prose import (
    ROOT,
    docstring_faults,
    faults,
    faults_of,
    files,
    has_verb,
    main,
)


@pytest.mark.parametrize("file", files(), ids=lambda one: str(one.relative_to(ROOT)))
def test_a_file_has_none_of_the_commonest_faults(file: Path) -> None:
    """Words that nobody says, sentences of pages without a verb, modules with a riddle."""
    assert faults_of(file) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What becomes of results.", ["say what", "'becomes of'"]),
        ("Says what is none of these.", ["'is none'"]),
        (
            "Reads a topic.\n\nArgs:\n    told: ``told``, by whoever asks.",
            ["'whoever'"],
        ),
        ("Reads a topic; it is None if there is none.", []),
        ("Reads.\n\nArgs:\n    low: less than\n    1.\n", ["indent it"]),
        ("Reads.\n\nArgs:\n    low: less than\n        1.\n    *all: all.\n", []),
    ],
)
def test_faults_of_a_docstring(text: str, found: list[str]) -> None:
    """How a module begins, and words; code and names of arguments are not read."""
    said = list(docstring_faults(f'"""\n{text}\n"""\n'))
    assert len(said) == len(found)
    assert all(one.startswith(start) for one, start in zip(said, found, strict=True))


def test_the_command_fails_if_there_is_a_fault(tmp_path: Path) -> None:
    """So that a step of CI does."""
    (tmp_path / "good.md").write_text("It waits.\n", encoding="utf-8")
    (tmp_path / "bad.py").write_text('"""\nWhat is told.\n"""\n', encoding="utf-8")
    assert main([str(tmp_path / "good.md")]) == 0
    assert main([str(tmp_path / "good.md"), str(tmp_path / "bad.py")]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The topic is none.",
        "As members are told, it waits.",
        "A partition, said of as quiet, waits.",
        "- Late by one look.",
        "It waits.\nBounded by time, never by luck.\n",
        "One thing or the other, whatever the [broker](x.md).",
    ],
)
def test_a_fault_is_found(text: str) -> None:
    """In paragraphs and in lists."""
    assert len(list(faults(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "There is none.",
        "Next: a worker.",
        "From the shell: `safeconsumer pause`.",
        "`register` waits.",
        "# Late by one look.",
        "| what | Late by one look. |",
        "```text\nIt is told.\n```",
        "<!-- It is told. -->",
        "Call `told` once.",
        "[Late by](x.md) one look it stops.",
    ],
)
def test_what_is_no_fault_is_left_alone(text: str) -> None:
    """Code, tables, headings, comments and labels are not read as sentences."""
    assert list(faults(text)) == []


def test_most_verbs_are_known_by_their_end() -> None:
    """So that a new one need not be listed."""
    assert has_verb("A hold covers it all.")
    assert not has_verb("Late by one look.")
