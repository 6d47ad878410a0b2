"""Dead letters at a broker: a replay that dies."""

from collections import Counter

import pytest

from tests.broker.cli.letters import SECONDS, meddled, replayed_from

pytestmark = pytest.mark.any_broker


def test_a_replay_that_is_killed_in_the_middle_of_a_window(post):
    """The next run sends the window again: nothing is lost, and the header tells of it."""
    for n in range(104):
        post.put(b"%d" % n)

    class Killed(BaseException):
        pass

    def die(producer, value):
        if value == b"102":
            producer.flush(SECONDS)
            raise Killed

    with meddled(die), pytest.raises(Killed):
        post.run("replay")
    assert post.committed() == 100
    ended = post.run("replay")
    assert ended.stdout == "4 sent back, 0 could not be\n", ended.output
    twice = Counter(map(replayed_from, post.back()))
    assert twice == Counter(f"{post.dead}:0@{n}" for n in (*range(104), 100, 101))
