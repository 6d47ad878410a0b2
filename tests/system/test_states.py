"""Tests the choice of the commits that a benchmark compares, and of the imported code."""

import os
import sys

import pytest

from tests.bench import states
from tests.harness.processes import Process, ran

DAY = 24 * 60 * 60
NOW = 2_000_000_000


def git(folder, *arguments, at=NOW):
    who = {
        f"GIT_{one}_{what}": "x"
        for one in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    env = {**os.environ, **who, "GIT_COMMITTER_DATE": f"{at} +0000"}
    return ran("git", *arguments, cwd=folder, env=env, check=True).stdout.strip()


def commit(folder, at):
    git(folder, "commit", "-q", "--allow-empty", "-m", "x", at=at)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def test_commit_on_main_is_compared_with_a_commit_of_the_day_before(clone):
    """If all commits are younger than a day, the commit is compared with its parent."""
    first = commit(clone, NOW - DAY - 2)
    commit(clone, NOW - DAY + 1)
    commit(clone, NOW)
    assert states.landed(clone) == first
    git(clone, "checkout", "-q", "--orphan", "young")
    git(clone, "branch", "-D", "main")
    young = commit(clone, NOW - 1)
    commit(clone, NOW)
    assert states.landed(clone) == young


def test_branch_is_compared_with_the_commit_at_which_it_left_main(clone):
    """If there is an origin, its main branch is used instead of the local main branch."""
    pushed = commit(clone, NOW)
    git(clone, "checkout", "-q", "-b", "work")
    commit(clone, NOW + 1)
    assert states.landed(clone) == pushed
    git(clone, "checkout", "-q", "main")
    git(clone, "update-ref", "refs/remotes/origin/main", pushed)
    commit(clone, NOW + 2)
    assert states.landed(clone) == pushed


def test_variant_imports_the_package_from_its_own_folder(tmp_path):
    """The benchmarks themselves are still imported from this checkout."""
    (tmp_path / "safeconsumer.py").touch()
    code = "import safeconsumer, tests.bench.memory; print(safeconsumer.__file__)"
    command = [sys.executable, "-c", code]
    with Process(command, env=states.environment(tmp_path)) as process:
        assert process.take(20.0) == str(tmp_path / "safeconsumer.py")
