"""Dead letters at a broker: from a worker, and back to it; a replay that dies."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.cli.errors import Status
from tests.broker.cli.letters import SECONDS, Post, meddled, replayed_from
from tests.broker.cli.test_program import launched
from tests.broker.cli.test_run import Program, stopped
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker


@pytest.mark.parametrize("way", ["plain", "--keep-timestamp", "transaction"])
def test_a_replay_that_is_killed(
    post: Post,
    make_producer: Callable[..., Any],
    way: str,
) -> None:
    """
    In the middle of a window, of which some letters went out and nothing was heard.

    The next run looks for them in their topic, and sends those that are not there:
    also if they have the timestamps of long ago that their records had, or stand behind
    the beginning of somebody's transaction.
    """
    for n in range(4):
        post.put(b"%d" % n)
    theirs: Any = None
    if way == "transaction":
        theirs = make_producer(
            transactional_id=post.topic, acks="all", enable_idempotence=True
        )
        theirs.init_transactions()
        theirs.begin_transaction()
        theirs.send(post.topic, b"theirs", partition=1).get(SECONDS)
    options = [way] if way.startswith("-") else []

    class Killed(BaseException):
        pass

    def die(producer: Any, value: bytes) -> None:  # noqa: ANN401 - a producer
        if value == b"2":
            producer.flush(SECONDS)
            raise Killed

    with meddled(die), pytest.raises(Killed):
        post.run("replay", *options)
    ended = post.run("replay")
    assert ended.stdout == "2 sent back, 0 left; 2 sent before\n", ended.output
    if theirs is not None:
        theirs.commit_transaction()
    back = sorted(one.value for one in post.back())
    assert back == [b"0", b"1", b"2", b"3", *[b"theirs"] * (theirs is not None)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_from_a_worker_and_back_to_it(
    tmp_path: Path,
    post: Post,
    make_producer: Callable[..., Any],
    number: signal.Signals,
) -> None:
    """Every record that failed is handled again, once, though the replay is interrupted."""
    count = 30
    producer = make_producer()
    program = Program(tmp_path, post.broker, post.topic, producer)
    for n in range(count):
        producer.send(post.topic, b"%d" % n, key=b"%d" % (n % 3)).get(SECONDS)
    (tmp_path / "letters").write_text(post.dead)
    failing = program.start("handlers:refusing")
    wait_for(
        lambda: len(post.back(post.dead)) == count, "all are dead letters", SECONDS * 2
    )
    stopped(failing)
    assert post.run("list", "--error=Invalid").stdout.endswith(f"{count} letters\n")

    asking = ("dead-letters", "replay", post.dead, "--bootstrap", post.bootstrap)
    first = launched(tmp_path, *asking, "--rate=2/s")
    wait_for(lambda: len(post.back()) >= count + 5, "some are sent back")
    first.send_signal(number)
    _, told = first.communicate(timeout=SECONDS)
    ended = Status.INTERRUPTED if number == signal.SIGINT else -number
    assert first.returncode == ended, told
    second = launched(tmp_path, *asking)
    output, _ = second.communicate(timeout=SECONDS)
    sent, before = map(int, re.findall(r"(\d+) sent", output))
    assert (sent + before, second.returncode) == (count, Status.DONE), output
    assert 5 <= before < count

    records = post.back()
    places = [place for one in records if (place := replayed_from(one))]
    assert sorted(places) == sorted(f"{post.dead}:0@{n}" for n in range(count))
    (tmp_path / "seen").unlink()
    handling = program.start("handlers:noting")
    program.wait_seen(count)
    told = stopped(handling)
    assert f"{count} handled" in told
