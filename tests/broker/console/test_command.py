"""``safeconsumer console`` in a process of its own."""

import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from safeconsumer.cli.errors import Status
from tests.broker.cli.test_program import HEARS_CTRL_C, command
from tests.harness.group.team import where
from tests.harness.processes import begun
from tests.harness.waiting import looks

_WITHOUT = """
import sys
sys.modules[{package!r}] = None
sys.argv[1:] = ["console", "--bootstrap", "127.0.0.1:1"]
from safeconsumer.cli.main import main
main()
"""


@pytest.mark.parametrize("package", ["jinja2", "starlette", "uvicorn"])
def test_without_the_extra_it_says_how_to_install_it(package):
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
        f"safeconsumer: the command needs {package}: "
        "pip install 'safeconsumer[console]'\n"
    )
    assert (ended.returncode, ended.stderr) == (Status.USAGE, line)


@pytest.mark.embedded_broker
def test_ctrl_c_ends_it_though_somebody_waits(team, tmp_path):
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
        httpx2.Client(timeout=30, headers=headers) as client,
        ThreadPoolExecutor(1) as pool,
        begun(asking, **pipes) as process,
    ):
        url = httpx2.URL(process.stdout.readline().split()[-1]).join("/place")
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
                "POST /place HTTP/1.1",
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
