"""``safeconsumer console`` as it is typed: what it says where it cannot serve."""

import errno
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from tests.broker.cli.test_program import HEARS_CTRL_C, command
from tests.harness.group.operating import where
from tests.harness.group.team import Team
from tests.harness.processes import begun
from tests.harness.waiting import looks


def run(*arguments: str) -> Result:
    where = ("--bootstrap", "127.0.0.1:1")
    return CliRunner().invoke(safeconsumer, ["console", *where, *arguments])


def ends(result: Result) -> tuple[int, int]:
    """Return the status, and how many lines were said of it."""
    return result.exit_code, result.stderr.count("\n")


_WITHOUT = """
import sys
sys.modules[{package!r}] = None
sys.argv[1:] = ["console", "--bootstrap", "127.0.0.1:1"]
from safeconsumer.cli.main import main
main()
"""


@pytest.mark.parametrize("package", ["jinja2", "starlette", "uvicorn"])
def test_without_the_extra_it_says_how_to_install_it(package: str) -> None:
    """In a process of its own, where nothing of it was imported before."""
    program = _WITHOUT.format(package=package)
    ended = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    line = (
        f"safeconsumer: the console needs {package}: "
        "pip install 'safeconsumer[console]'\n"
    )
    assert (ended.returncode, ended.stderr) == (Status.USAGE, line)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("--port", str(taken.getsockname()[1]))
    assert ends(result) == (Status.USAGE, 1)
    assert "choose one with --port" in result.stderr


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """Make a file with a token, which only its owner may read."""
    file = tmp_path / "token"
    file.write_text("a token of many characters\n")
    file.chmod(0o600)
    return file


def test_what_a_token_is_for_is_said(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no word of what it is."""

    def serve(_: object, tell: Callable[[str], object], __: object) -> None:
        tell("http://127.0.0.1:1/login?token=once")
        raise KeyboardInterrupt

    monkeypatch.setattr("safeconsumer.console.serve.serve", serve)
    result = run("--token-file", str(token))
    assert result.exit_code == Status.DONE
    assert "http://127.0.0.1:1/login?token=TOKEN" in result.stdout
    assert "Authorization: Bearer TOKEN" in result.stdout
    assert "many characters" not in result.stdout


def test_only_a_port_that_is_taken_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not what a broker does."""

    def serve(*_: object) -> None:
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
def test_a_token_that_is_none(
    token: Path, content: bytes, mode: int, said: str
) -> None:
    """It can be guessed, is no text, or is everybody's."""
    token.write_bytes(content)
    token.chmod(mode)
    result = run("--token-file", str(token))
    assert ends(result) == (Status.USAGE, 1)
    assert said in result.stderr


def test_an_owner_that_is_none() -> None:
    assert ends(run("--owner", "operator:bob")) == (Status.USAGE, 1)


@pytest.mark.embedded_broker
def test_ctrl_c_ends_it_though_somebody_waits(team: Team, tmp_path: Path) -> None:
    """Whose connection would not end for a minute, or who sends no body: a traceback."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    token = tmp_path / "token"
    token.write_text("t" * 20)
    token.chmod(0o600)
    settings = ("--port", "0", "--token-file", str(token), *where(team))
    asking = command("console", *settings, first=HEARS_CTRL_C)
    wish = {"group": team.group, "scopes": "@all", "reason": "x"}
    headers = {"Authorization": f"Bearer {'t' * 20}"}
    with (
        httpx.Client(timeout=30, headers=headers) as client,
        ThreadPoolExecutor(1) as pool,
        begun(asking, **pipes) as process,
    ):
        url = httpx.URL(process.stdout.readline().split()[-1]).join("/api/v1/pause")
        for _ in looks(
            lambda: "preview" in client.post(url, json=wish).json(), "a look"
        ):
            time.sleep(0.1)
        seen = client.post(url, json=wish).json()["preview"]
        late = team.broker.hold("Metadata", client_id="safeconsumer-cli")
        waits = pool.submit(
            client.post, url, json={**wish, "agreed": seen["agreement"]}
        )
        late.wait()
        with socket.create_connection((url.host, url.port)) as stalled:
            head = [
                "POST /api/v1/pause HTTP/1.1",
                f"Host: {url.host}:{url.port}",
                f"Authorization: {headers['Authorization']}",
                "Content-Type: application/json",
                "Content-Length: 100",
            ]
            stalled.sendall("\r\n".join([*head, "", "{"]).encode())
            client.get(url.join("/live"))
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=60)
            answer = stalled.recv(100)
        assert waits.result(30).status_code == 503
        late.release()
    assert (said.splitlines()[-1], errors) == ("The console is closed.", "")
    assert (process.returncode, answer[:12]) == (0, b"HTTP/1.1 503")
