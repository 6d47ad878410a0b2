"""Tests the messages and the exit statuses of ``safeconsumer console``."""

import errno
import socket

import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status


def run(*arguments):
    where = ("--bootstrap", "127.0.0.1:1")
    return CliRunner().invoke(safeconsumer, ["console", *where, *arguments])


def ending(result):
    """Return the exit status and the number of lines on stderr."""
    return result.exit_code, result.stderr.count("\n")


@pytest.fixture
def token(tmp_path):
    """Return a token file that only its owner may read."""
    file = tmp_path / "token"
    file.write_text("a token of many characters\n")
    file.chmod(0o600)
    return file


def test_port_in_use_is_a_usage_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("--port", str(taken.getsockname()[1]))
    assert ending(result) == (Status.USAGE, 1)
    assert "choose one with --port" in result.stderr


def test_lost_connection_is_not_reported_as_a_port_in_use(monkeypatch):
    def serve(*_):
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    monkeypatch.setattr("safeconsumer.console.serve.serve", serve)
    result = run()
    assert ending(result) == (Status.UNREACHABLE, 1)
    assert "--port" not in result.stderr


def test_command_explains_how_to_use_a_token_and_does_not_print_it(token, monkeypatch):
    def serve(_, tell, __):
        tell("http://127.0.0.1:1/login?token=once")
        raise KeyboardInterrupt

    monkeypatch.setattr("safeconsumer.console.serve.serve", serve)
    result = run("--token-file", str(token))
    assert result.exit_code == Status.DONE
    assert "http://127.0.0.1:1/login?token=TOKEN" in result.stdout
    assert "Authorization: Bearer TOKEN" in result.stdout
    assert "many characters" not in result.stdout


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"short\n", 0o600, "16 characters or more"),
        (b"\xff" * 20, 0o600, "cannot be read"),
        (b"a token of many characters", 0o604, "may be read by others"),
        (b"a token of many characters", 0o640, "may be read by others"),
    ],
    ids=["short", "not UTF-8", "readable by all", "readable by its group"],
)
def test_unsuitable_token_file_is_refused(token, content, mode, reason):
    token.write_bytes(content)
    token.chmod(mode)
    result = run("--token-file", str(token))
    assert ending(result) == (Status.USAGE, 1)
    assert reason in result.stderr


def test_reserved_owner_name_is_refused():
    assert ending(run("--owner", "operator's reset")) == (Status.USAGE, 1)
