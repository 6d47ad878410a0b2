"""Tests that case processes exit with the session, and that calls end with their case."""

import sys

import pytest

from safeconsumer.testing.cases.consumer import until
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.process import ClientError, Launch, Process
from tests.harness.waiting import code_of

CLIENT = """
import time


class Client:
    def open(self, settings):
        self.is_bad = settings["group"] == "bad"

    def assignment(self):
        return []

    def poll(self, timeout, limit):
        if self.is_bad:
            raise RuntimeError("planted")
        return []

    def commit(self):
        time.sleep(60)

    def close(self):
        pass
"""


@pytest.fixture
def launch(tmp_path):
    (tmp_path / "planted.py").write_text(CLIENT)
    return Launch(
        adapter="planted:Client",
        path=(str(tmp_path), *sys.path),
    )


def test_hanging_case_process_exits_with_the_session(launch, tmp_path):
    """When pytest is killed, the process can notice only that its stdin is closed."""
    process = Process(launch, tmp_path / "log")
    process.call("open", {"group": None})
    process.begin("commit")
    try:
        process._process.stdin.close()
        code_of(process._process)
    finally:
        process.kill()


@pytest.mark.embedded_suffices
def test_late_response_of_a_process_is_not_used_in_the_next_case(
    launch, kafka_broker, tmp_path
):
    """One member's poll raises while another member's poll is still running."""
    with Lab(kafka_broker, launch, "range", tmp_path / "log") as lab:
        members = [lab.consumer("bad"), lab.consumer("good")]
        with pytest.raises(ClientError):
            until(members, lambda: False, "nothing")
        lab.end_case()
        for group in ("third", "fourth"):
            assert lab.consumer(group).assignment() == set()
