"""Scopes as they are typed."""

import pytest

from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.group.scopes import scopes_of


def test_ranges_are_holds_of_their_own():
    scopes = scopes_of(["a:0-2,5", "b:7", "a:1", "c"], "g")
    assert [*map(str, scopes)] == ["a:0", "a:1", "a:2", "a:5", "b:7", "c"]


def test_ranges_of_a_topic_that_is_called_re():
    """Without its name twice it is a pattern, which may be a topic's name."""
    scopes = scopes_of(["re:re:0-1,5", "re:0-2", "re:re:7"], "g")
    assert [*map(str, scopes)] == ["re:re:0", "re:re:1", "re:re:5", "re:0-2", "re:re:7"]
    assert [one.covers(("re", 1)) for one in scopes] == [0, 1, 0, 0, 0]
    assert [one.covers(("0-2", 1)) for one in scopes] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "text",
    ["a:2-1", "a:0-5000", "a:1-", "a:0-٣", f"a:0-{5000 * '9'}", f"a:1-{'9' * 5000}"],
)
def test_bad_ranges(text):
    with pytest.raises(ScopeSyntaxError, match="a:"):
        scopes_of([text], "g")
