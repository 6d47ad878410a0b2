"""Tests workers in event loops, in web applications, and in servers that fork."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest
import uvloop
from starlette.testclient import TestClient

from safeconsumer import Pump, Worker
from safeconsumer.errors import ForkedConsumerError
from tests.harness.docs.pages import ROOT, blocks
from tests.harness.holds.forking import is_true_in_child
from tests.harness.waiting import code_of, repeat_until, wait_for

pytestmark = pytest.mark.embedded_suffices

PAGE = ROOT / "docs" / "how-to" / "slow-handlers.md"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_signal_drains_a_worker_run_by_serve(lab, run):
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 20})
    before = signal.getsignal(signal.SIGTERM)

    async def handle(_record, _context):
        await asyncio.sleep(0)

    async def main():
        worker = Worker(lab.consumer(), handle, executor="asyncio")
        serving = asyncio.create_task(worker.serve(signals=(signal.SIGTERM,)))
        for _ in repeat_until(lambda: worker.stats().done == count, "all to be done"):
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        report = await serving
        assert (report.done, report.committed) == (count, True)

    run(main())
    assert signal.getsignal(signal.SIGTERM) is before
    assert lab.committed() == {0: count}


def test_worker_runs_in_the_lifespan_of_a_web_application(lab, monkeypatch):
    """The test runs the page's code block, but with a topic of its own."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 20})
    monkeypatch.setenv("KAFKA", lab.broker.bootstrap)
    (code,) = [one.code for one in blocks(PAGE) if "FastAPI" in one.code]
    names = {"__name__": "page"}
    exec(code.replace('"orders"', repr(lab.topic)), names)  # noqa: S102 - the page's own code
    with TestClient(names["app"]) as client:
        worker = names["app"].state.worker
        wait_for(lambda: worker.stats().done == count, "all to be done")
        assert client.get("/healthz").status_code == 200
    assert worker.stats().state == "closed"
    lab.group = "billing"
    assert lab.committed() == {0: count}


def is_refused(call):
    try:
        call()
    except ForkedConsumerError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_refuses_the_worker_of_its_parent(lab):
    """The parent's worker keeps running after the fork."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 20})
    running = lab.run(lambda *_: None)
    with closing(lab.consumer()) as consumer:
        fresh = Worker(consumer, lambda *_: None)
        running.wait_done(count)
        for call in (running.worker.run, fresh.run, Pump(consumer).__enter__):
            assert is_true_in_child(lambda call=call: is_refused(call))
        health = running.worker.healthy
        assert is_true_in_child(lambda: "in the parent" in str(health().reasons))
    lab.produce({0: ["v"] * 20})
    running.wait_done(2 * count)
    running.end()
    assert lab.committed() == {0: 2 * count}


SERVED = """
import os, threading
from safeconsumer import Commit, SafeConsumer, Worker

consumer = SafeConsumer(
    os.environ["TOPIC"], bootstrap_servers=os.environ["KAFKA"], group_id="billing",
    enable_auto_commit=False, auto_offset_reset="earliest", log=False,
)
worker = Worker(consumer, lambda *_: None, commit=Commit(every=0.1))
threading.Thread(target=worker.run, daemon=True).start()


def app(_environ, start_response):
    start_response("200 OK", [])
    try:
        worker.run()
    except Exception as error:
        return [type(error).__name__.encode()]
"""


def answer(path):
    """Return the body of a response from the HTTP server on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(30)
        asking.connect(str(path))
        asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with asking.makefile("rb") as found:
            return found.read().partition(b"\r\n\r\n")[2]


@pytest.mark.nightly
def test_worker_in_the_gunicorn_master_keeps_running_after_forks(lab, tmp_path):
    (tmp_path / "served.py").write_text(SERVED)
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 20})
    lab.group = "billing"
    environment = {**os.environ, "TOPIC": lab.topic, "KAFKA": lab.broker.bootstrap}
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "gunicorn", "--preload", "--bind", f"unix:{path}"]
    server = subprocess.Popen(  # noqa: S603 - our own code
        [*command, "--workers", "2", "served:app"], cwd=tmp_path, env=environment
    )
    try:
        wait_for(lambda: lab.committed() == {0: count}, "the master's worker")
        wait_for(path.exists, "the server")
        assert answer(path) == b"ForkedConsumerError"
        lab.produce({0: ["v"] * 20})
        wait_for(lambda: lab.committed() == {0: 2 * count}, "the master to go on")
    finally:
        server.terminate()
        code_of(server)
