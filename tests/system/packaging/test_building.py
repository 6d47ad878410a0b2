"""Tests the files in a wheel and an sdist, and the metadata for a package index."""

import re
import tarfile
import zipfile
from email import message_from_bytes

import pytest

from tests.harness.packages import ROOT, build, files_below, package_in


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (one for one in opened.namelist() if one.endswith("/METADATA"))
        return message_from_bytes(opened.read(name))


@pytest.mark.parametrize("is_wanted", [True, False])
def test_pure_wheel_has_every_file_and_the_build_reports_an_unwanted_fallback(
    tmp_path, is_wanted
):
    """The build has no compiler; in one case an environment variable disables the decoder."""
    pure = {"SAFECONSUMER_PURE_PYTHON": "1" if is_wanted else "0"}
    wheel, output = build(tmp_path, "wheel", PATH="", **pure)
    assert package_in(wheel) == files_below("safeconsumer")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert ("without the compiled decoder: " in output) != is_wanted


def test_sdist_has_every_file_that_building_and_testing_need(tmp_path):
    sdist, _ = build(tmp_path, "sdist")
    with tarfile.open(sdist) as opened:
        names = {one.name.partition("/")[2] for one in opened.getmembers()}
    needed = {"pyproject.toml", "LICENSE", "NOTICE", "README.md", "PKG-INFO"}
    needed |= {"CHANGELOG.md", "CONTRIBUTING.md"}
    folders = "safeconsumer", "tests", "docs", "design", ".ci", ".github"
    assert names - {".gitignore"} == needed.union(*map(files_below, folders))


def test_metadata_built_by_github_has_project_urls_and_absolute_links(tmp_path):
    """In GitHub Actions, environment variables name the repository and the commit."""
    environment = {"GITHUB_REPOSITORY": "someone/safeconsumer", "GITHUB_SHA": "c0ffee"}
    wheel, _ = build(tmp_path, "wheel", PATH="", **environment)
    metadata = metadata_of(wheel)
    home = "https://github.com/someone/safeconsumer"
    assert f"Source, {home}" in metadata.get_all("Project-URL", [])
    readme = metadata.get_payload()
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", readme) == []
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", readme)
    assert all(one.startswith(f"{home}/raw/c0ffee/design/") for one in pictures)
    assert len(pictures) == README_PICTURES
    assert f"]({home}/blob/c0ffee/CONTRIBUTING.md)" in readme


README_PICTURES = len(re.findall(r"!\[", (ROOT / "README.md").read_text("utf-8")))


def test_metadata_built_elsewhere_has_no_project_urls(tmp_path):
    wheel, _ = build(tmp_path, "wheel", PATH="")
    metadata = metadata_of(wheel)
    assert metadata.get_all("Project-URL") is None
    text = (ROOT / "README.md").read_text("utf-8").rstrip("\n")
    assert str(metadata.get_payload()).rstrip("\n") == text
