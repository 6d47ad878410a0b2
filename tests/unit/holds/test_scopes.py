import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from safeconsumer import SafeConsumerError
from safeconsumer.errors import ScopeSyntaxError, TargetTypeError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import Everything, Partition, Pattern, Topic
from tests.harness.listing import short
from tests.unit.holds.strategies import any_scopes, quick


@quick
@given(any_scopes)
def test_parse_is_the_inverse_of_str(scope):
    assert scopes.parse(str(scope)) == scope


@quick
@given(st.lists(any_scopes, max_size=8))
def test_scopes_with_equal_text_are_equal(several):
    assert len(set(several)) == len({str(one) for one in several})


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("orders:3", Partition("orders", 3)),
        ("orders", Topic("orders")),
        ("re:ord.*", Pattern("ord.*", re.compile("ord.*"))),
        ("re:a:b", Pattern("a:b", re.compile("a:b"))),
        ("@all", Everything()),
        # A topic may be named re.
        ("re", Topic("re")),
        ("re:3", Pattern("3", re.compile("3"))),
        ("re:re:3", Partition("re", 3)),
        ("re:re", Pattern("re", re.compile("re"))),
        ("re:re:[0-9]", Pattern("re:[0-9]", re.compile("re:[0-9]"))),
        ("re.re:3", Partition("re.re", 3)),
    ],
    ids=short,
)
def test_notation_of_scopes_is_parsed(text, scope):
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
def test_scope_covers_the_partitions_of_its_notation(text, covered, uncovered):
    scope = scopes.parse(text)
    assert covered == [tp for tp in [*covered, *uncovered] if scope.covers(tp)]


class CountingPattern:
    """A compiled pattern from another library, such as google-re2, not an ``re.Pattern``."""

    pattern = "orders.*"

    def __init__(self):
        self.asked = []

    def fullmatch(self, string, /):
        self.asked.append(string)
        return re.fullmatch(self.pattern, string)


def test_pattern_from_another_library_equals_the_same_pattern_from_re():
    scope = scopes.pattern(CountingPattern())
    assert scope.covers(("orders.eu", 0))
    assert scope == scopes.pattern(re.compile("orders.*"))


class Foreign:
    """A pattern from another library that lacks the attribute ``pattern``."""

    def fullmatch(self, string, /):
        raise NotImplementedError(string)


def test_target_becomes_a_scope():
    """A target that is already a scope is returned unchanged."""
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
def test_target_of_another_type_is_refused_with_its_repr(target):
    with pytest.raises(TargetTypeError) as refused:
        scopes.of(target)
    message = str(refused.value)
    assert message.startswith("a target is a TopicPartition, a scope like 'orders:3'")
    assert message.endswith(f"or a hold's scope, not {target!r:.200}")


NAMES = [
    "",
    ".",
    "..",
    "two words",
    "new\nline",
    "nul\x00",
    "trailing\n",
    "caf\u00e9",
    "slash/ed",
    "x" * 250,
]
TEXTS = [
    "",
    ":3",
    "orders:",
    "orders:-1",
    "orders:+1",
    "orders: 1",
    "orders:x",
    "orders:\u0663",
    "orders:1:2",
    "orders:2147483648",
    "orders:" + "9" * 5000,
    "@everything",
    "re:",
    "re:(",
    "re:a{99999999999999999999}",
    "re:re:2147483648",
    "re:" + "(" * 2000 + ")" * 2000,
]
PATTERNS = {
    re.compile(""): "1 to 4096 characters, this one has 0",
    re.compile("x" * 4097): "1 to 4096 characters, this one has 4097",
    re.compile(b"orders"): "of bytes",
    re.compile("orders", re.IGNORECASE): "flags",
    re.compile("orders", re.VERBOSE): "flags",
    re.compile("re:3"): "is a partition of the topic re",
    **{
        re.compile(f"orders{half}"): f"{'orders' + half!r} cannot be written"
        for half in ("\ud800", "\udabc", "\udfff")
    },
}
REFUSED = [
    *((scopes.topic, name, repr(name[:249])) for name in NAMES),
    *((scopes.topic, name, repr(name)) for name in (None, 3, b"orders", ["orders"])),
    *(
        (partial(scopes.partition, "orders"), number, "orders")
        for number in (-1, 2**31, True, 1.0, "1", None)
    ),
    *((scopes.parse, text, "") for text in TEXTS),
    *((scopes.pattern, compiled, part) for compiled, part in PATTERNS.items()),
    *((scopes.parse, f"re:{one.pattern}", "cannot") for one in [*PATTERNS][-3:]),
]


@pytest.mark.parametrize(("make", "value", "part"), REFUSED, ids=short)
def test_invalid_name_number_text_or_pattern_is_refused(make, value, part):
    """The error is a ``SafeConsumerError`` and, for drop-in users, also a ``ValueError``."""
    with pytest.raises(ScopeSyntaxError) as caught:
        make(value)
    assert part in str(caught.value)
    assert isinstance(caught.value, SafeConsumerError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text",
    ["x" * 249, "re:(?i)ORDERS", "re:\ud7ff", "re:\ue000", "re:" + "a" * 4096],
    ids=[
        "longest topic",
        "inline flags",
        "below surrogates",
        "above",
        "longest pattern",
    ],
)
def test_scope_at_a_limit_is_accepted(text):
    assert str(scopes.parse(text)) == text
