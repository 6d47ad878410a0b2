"""The files in a wheel and an sdist, and the metadata that an index shows."""

import os
import re
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.harness.processes import ran_python

ROOT = Path(__file__).parents[3]
DECODER = "safeconsumer/_kafka/decoding/_batches.abi3.so"


def build(folder, kind, **environment):
    """Build; return the file and the output."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    command = ["-m", "hatchling", "build", "-t", kind, "-d", folder]
    env = inherited | environment
    done = ran_python(*command, cwd=ROOT, env=env, timeout=None)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built, done.stdout + done.stderr


# Python, a build of the site, and an editable installation make these.
MADE = {"__pycache__", "generated"}
COMPILED = ".so"


def files_below(name):
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / name).rglob("*")
        if path.is_file() and MADE.isdisjoint(path.parts) and path.suffix != COMPILED
    }


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (one for one in opened.namelist() if one.endswith("/METADATA"))
        return message_from_bytes(opened.read(name))


def package_in(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    return {name for name in names if ".dist-info/" not in name}


@pytest.mark.parametrize("is_wanted", [True, False])
def test_pure_wheel_has_every_file_and_the_build_says_if_it_is_a_fallback(
    tmp_path, is_wanted
):
    """Without a compiler there is no compiled decoder."""
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


def test_index_page_has_addresses_and_absolute_links(tmp_path):
    """A build in GitHub Actions knows the repository's address."""
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


def test_build_elsewhere_has_no_addresses_and_the_plain_readme(tmp_path):
    wheel, _ = build(tmp_path, "wheel", PATH="")
    metadata = metadata_of(wheel)
    assert metadata.get_all("Project-URL") is None
    text = (ROOT / "README.md").read_text("utf-8").rstrip("\n")
    assert str(metadata.get_payload()).rstrip("\n") == text
