"""Tests that the tag, the version and the changelog of a release agree."""

import re
from collections import Counter

import pytest

import safeconsumer
from tests.system.packaging.notes import CHANGELOG, NotReadyError, notes

TEXT = (
    "# Changelog\n\n## 1.3.0, unreleased\n\n- b\n\n## 1.2.0, 2027-01-09\n\n- a\n- c\n"
)


def test_notes_are_the_changelog_section_of_the_version():
    assert notes("v1.2.0", "1.2.0", TEXT) == "- a\n- c"


@pytest.mark.parametrize(
    ("tag", "version", "text", "reason"),
    [
        ("v1.2.1", "1.2.0", TEXT, "tag is v1.2.1, .* is 1.2.0"),
        ("1.2.0", "1.2.0", TEXT, "the tag is 1.2.0"),
        ("v1.3.0", "1.3.0", TEXT, "unreleased; it needs the date"),
        ("v2.0.0", "2.0.0", TEXT, "no line '## 2.0.0"),
        ("v1.2.0", "1.2.0", "## 1.2.0, 2027-01-09\n\n## 1.1.0, x\n- a", "says nothing"),
    ],
)
def test_tag_without_a_matching_dated_section_is_refused(tag, version, text, reason):
    with pytest.raises(NotReadyError, match=reason):
        notes(tag, version, text)


def test_changelog_starts_with_the_packages_version():
    found = re.search(r"^## .*", CHANGELOG.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    version = re.escape(safeconsumer.__version__)
    form = rf"## {version}, (unreleased|\d{{4}}-\d\d-\d\d)"
    assert re.fullmatch(form, found[0])


def test_no_changelog_section_repeats_an_entry():
    """If two branches add the same entry, their merge may contain the entry twice."""
    for section in re.split(r"^## ", CHANGELOG.read_text("utf-8"), flags=re.MULTILINE):
        version, *lines = section.splitlines()
        entries = [one.split(". ")[0] for one in lines if one.startswith("- ")]
        rows = [one for one in lines if one.startswith("  ") and "`" in one]
        entries_and_rows = Counter(entries + rows)
        assert (
            version,
            [one for one, count in entries_and_rows.items() if count > 1],
        ) == (
            version,
            [],
        )
