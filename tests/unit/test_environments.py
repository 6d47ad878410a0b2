"""Tests environments with other packages, which pytest workers may create concurrently."""

from pathlib import Path

import pytest

from tests.harness import environments


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Return a function that makes an environment; it calls ``meanwhile`` before a rename."""

    def make(meanwhile):
        monkeypatch.setattr(environments, "cache_folder", lambda: tmp_path)
        monkeypatch.setattr(
            environments.venv, "create", lambda made, **_: Path(made).mkdir()
        )
        monkeypatch.setattr(environments, "must_run", lambda *_: meanwhile())
        return environments.python_of("some-package==1")

    return make


def test_environment_that_another_process_created_first_is_used(make):
    def finish():
        folder = environments._folder("some-package==1")
        (folder / "bin").mkdir(parents=True)

    assert make(finish).parent.is_dir()


def test_environment_that_cannot_create_its_folder_raises_an_error(make, tmp_path):
    def block():
        environments._folder("some-package==1").write_text("a file")

    with pytest.raises(OSError, match="Not a directory"):
        make(block)
    assert [one.name for one in (tmp_path / "clients").iterdir() if one.is_dir()] == []
