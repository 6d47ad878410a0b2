import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from safeconsumer.errors import TargetTypeError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import Everything, Partition, Pattern, Topic
from tests.harness.listing import short
from tests.unit.holds.strategies import any_scopes, quick


@quick
@given(any_scopes)
def test_a_scope_reads_back_as_it_was_written(scope):
    """``parse`` is the opposite of ``str``."""
    assert scopes.parse(str(scope)) == scope


@quick
@given(st.lists(any_scopes, max_size=8))
def test_scopes_that_are_written_alike_are_equal(several):
    """The notation alone says what is meant."""
    assert len(set(several)) == len({str(one) for one in several})


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("orders:3", Partition("orders", 3)),
        ("orders", Topic("orders")),
        ("re:ord.*", Pattern("ord.*", re.compile("ord.*"))),
        ("re:a:b", Pattern("a:b", re.compile("a:b"))),
        ("@all", Everything()),
        # A topic may be called re.
        ("re", Topic("re")),
        ("re:3", Pattern("3", re.compile("3"))),
        ("re:re:3", Partition("re", 3)),
        ("re:re", Pattern("re", re.compile("re"))),
        ("re:re:[0-9]", Pattern("re:[0-9]", re.compile("re:[0-9]"))),
        ("re.re:3", Partition("re.re", 3)),
    ],
    ids=short,
)
def test_the_notation(text, scope):
    assert scopes.parse(text) == scope


@pytest.mark.parametrize(
    ("text", "covered", "uncovered"),
    [
        ("orders:3", [("orders", 3)], [("orders", 2), ("orders.eu", 3)]),
        ("orders", [("orders", 0), ("orders", 7)], [("orders.eu", 0)]),
        ("re:orders", [("orders", 0)], [("orders.eu", 0), ("my.orders", 0)]),
        ("re:ord.*", [("orders", 0), ("orders.eu", 9)], [("audit", 0)]),
        ("re:(?i)ORDERS", [("orders", 0)], [("order", 0)]),
        ("@all", [("orders", 0), ("__consumer_offsets", 49)], []),
    ],
    ids=short,
)
def test_what_a_scope_covers(text, covered, uncovered):
    """A topic covers all its partitions, a pattern the whole name, ``@all`` all."""
    scope = scopes.parse(text)
    assert covered == [tp for tp in [*covered, *uncovered] if scope.covers(tp)]


class CountingPattern:
    """A compiled expression of another library, as google-re2's: not an ``re.Pattern``."""

    pattern = "orders.*"

    def __init__(self):
        self.asked = []

    def fullmatch(self, string, /):
        self.asked.append(string)
        return re.fullmatch(self.pattern, string)


def test_a_pattern_of_another_library_is_accepted():
    """Whatever offers ``pattern`` and ``fullmatch`` will do, and equals its ``re`` twin."""
    scope = scopes.pattern(CountingPattern())
    assert scope.covers(("orders.eu", 0))
    assert scope == scopes.pattern(re.compile("orders.*"))


class Foreign:
    """An expression of another library, whose text is found under another name."""

    def fullmatch(self, string, /):
        raise NotImplementedError(string)


def test_what_a_target_stands_for():
    """A pair, text, an expression, or a scope, which stays the same object."""
    compiled = re.compile("ord.*")
    scope = Topic("orders")
    assert scopes.of(scope) is scope
    assert scopes.of("orders:3") == Partition("orders", 3)
    assert scopes.of(("orders", 3)) == Partition("orders", 3)
    assert scopes.of(TopicPartition("orders", 3)) == Partition("orders", 3)
    assert scopes.of(compiled) == Pattern("ord.*", compiled)


@pytest.mark.parametrize(
    "target",
    [None, 3, ("orders",), ("orders", 3, 4), ["orders", 3], Foreign()],
    ids=["None", "a number", "a topic", "three", "a list", "another type"],
)
def test_what_stands_for_nothing_is_refused_by_name(target):
    """The message says what is taken, and what was given."""
    with pytest.raises(TargetTypeError) as refused:
        scopes.of(target)
    message = str(refused.value)
    assert message.startswith("a target is a TopicPartition, a scope like 'orders:3'")
    assert message.endswith(f"or a hold's scope, not {target!r:.200}")
