"""``safeconsumer console`` as it is typed: what it says where it cannot serve."""

import errno
import socket

import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status


def run(*arguments):
    where = ("--bootstrap", "127.0.0.1:1")
    return CliRunner().invoke(safeconsumer, ["console", *where, *arguments])


def ends(result):
    """Return the status, and how many lines were said of it."""
    return result.exit_code, result.stderr.count("\n")


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("--port", str(taken.getsockname()[1]))
    assert ends(result) == (Status.USAGE, 1)
    assert "choose one with --port" in result.stderr


@pytest.fixture
def token(tmp_path):
    """Make a file with a token, which only its owner may read."""
    file = tmp_path / "token"
    file.write_text("a token of many characters\n")
    file.chmod(0o600)
    return file


def test_what_a_token_is_for_is_said(token, monkeypatch):
    def serve(_, tell, __):
        tell("http://127.0.0.1:1/login?token=once")
        raise KeyboardInterrupt

    monkeypatch.setattr("safeconsumer.console.serve.serve", serve)
    result = run("--token-file", str(token))
    assert result.exit_code == Status.DONE
    assert "http://127.0.0.1:1/login?token=TOKEN" in result.stdout
    assert "Authorization: Bearer TOKEN" in result.stdout
    assert "many characters" not in result.stdout


def test_only_a_port_that_is_taken_is_told_as_one(monkeypatch):
    def serve(*_):
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    monkeypatch.setattr("safeconsumer.console.serve.serve", serve)
    result = run()
    assert ends(result) == (Status.UNREACHABLE, 1)
    assert "--port" not in result.stderr


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"short\n", 0o600, "16 characters or more"),
        (b"\xff" * 20, 0o600, "cannot be read"),
        (b"a token of many characters", 0o604, "may be read by others"),
        (b"a token of many characters", 0o640, "may be read by others"),
    ],
)
def test_a_token_that_is_none(token, content, mode, said):
    token.write_bytes(content)
    token.chmod(mode)
    result = run("--token-file", str(token))
    assert ends(result) == (Status.USAGE, 1)
    assert said in result.stderr


def test_an_owner_that_is_none():
    assert ends(run("--owner", "operator:bob")) == (Status.USAGE, 1)
