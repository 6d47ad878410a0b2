"""Dead letters at a broker: from a worker, and back to it; a replay that dies."""

import signal
from collections import Counter
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


def test_a_replay_that_is_killed_in_the_middle_of_a_window(post: Post) -> None:
    """The next run sends the window again: nothing is lost, and the header tells of it."""
    for n in range(104):
        post.put(b"%d" % n)

    class Killed(BaseException):
        pass

    def die(producer: Any, value: bytes) -> None:  # noqa: ANN401 - a producer
        if value == b"102":
            producer.flush(SECONDS)
            raise Killed

    with meddled(die), pytest.raises(Killed):
        post.run("replay")
    assert post.committed() == 100
    ended = post.run("replay")
    assert ended.stdout == "4 sent back, 0 left\n", ended.output
    twice = Counter(map(replayed_from, post.back()))
    assert twice == Counter(f"{post.dead}:0@{n}" for n in (*range(104), 100, 101))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_from_a_worker_and_back_to_it(
    tmp_path: Path,
    post: Post,
    make_producer: Callable[..., Any],
    number: signal.Signals,
) -> None:
    """Every record that failed is handled again, though the replay is interrupted."""
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
    first = launched(tmp_path, *asking, "--rate=2")
    wait_for(lambda: len(post.back()) >= count + 5, "some are sent back")
    first.send_signal(number)
    _, told = first.communicate(timeout=SECONDS)
    ended = Status.INTERRUPTED if number == signal.SIGINT else -number
    assert first.returncode == ended, told
    second = launched(tmp_path, *asking)
    output, _ = second.communicate(timeout=SECONDS)
    assert (second.returncode, post.committed()) == (Status.DONE, count), output

    records = post.back()
    places = [place for one in records if (place := replayed_from(one))]
    assert set(places) == {f"{post.dead}:0@{n}" for n in range(count)}
    # At two a second a window is two letters.
    assert len(places) <= count + (2 if number == signal.SIGKILL else 0)
    (tmp_path / "seen").unlink()
    handling = program.start("handlers:noting")
    program.wait_seen(len(places))
    told = stopped(handling)
    assert f"{len(places)} handled" in told
