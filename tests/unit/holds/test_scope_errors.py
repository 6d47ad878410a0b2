import re

import pytest

from safeconsumer import SafeConsumerError
from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.holds import scope as scopes
from tests.harness.listing import short

ILLEGAL_NAMES = [
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


@pytest.mark.parametrize("name", ILLEGAL_NAMES, ids=short)
def test_an_illegal_topic_name_is_refused_by_name(name):
    """Kafka's own rule: 1 to 249 of a-z A-Z 0-9 . _ -, and not . or .."""
    with pytest.raises(ScopeSyntaxError) as caught:
        scopes.topic(name)
    assert repr(name[:249]) in str(caught.value)


@pytest.mark.parametrize("name", [None, 3, b"orders", ["orders"]], ids=short)
def test_a_topic_name_that_is_no_text_is_refused(name):
    """Also by the class of errors that a drop-in user knows for bad values."""
    with pytest.raises(ScopeSyntaxError) as caught:
        scopes.topic(name)
    assert isinstance(caught.value, SafeConsumerError)
    assert isinstance(caught.value, ValueError)


def test_the_longest_legal_name_is_accepted():
    assert scopes.topic("x" * 249).topic == "x" * 249


@pytest.mark.parametrize("number", [-1, 2**31, True, 1.0, "1", None], ids=short)
def test_an_illegal_partition_number_is_refused(number):
    """A partition is an INT32 from 0."""
    with pytest.raises(ScopeSyntaxError, match="orders"):
        scopes.partition("orders", number)


@pytest.mark.parametrize(
    "text",
    [
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
        "re:" + "x" * 4097,
        "re:" + "(" * 2000 + ")" * 2000,
    ],
    ids=short,
)
def test_text_that_is_no_scope_is_refused(text):
    """Every way to be wrong is the same typed error."""
    with pytest.raises(ScopeSyntaxError):
        scopes.parse(text)


@pytest.mark.parametrize(
    ("compiled", "message"),
    [
        (re.compile(""), "1 to 4096 characters"),
        (re.compile("x" * 4097), "1 to 4096 characters"),
        (re.compile(b"orders"), "of bytes"),
        (re.compile("orders", re.IGNORECASE), "flags"),
        (re.compile("orders", re.VERBOSE), "flags"),
        (re.compile("re:3"), "is a partition of the topic re"),
    ],
    ids=short,
)
def test_a_pattern_whose_text_does_not_say_it_all_is_refused(compiled, message):
    """Empty, too long, of bytes, or with flags that the text does not carry."""
    with pytest.raises(ScopeSyntaxError, match=message):
        scopes.pattern(compiled)


def test_inline_flags_are_accepted():
    """They stand in the text."""
    assert scopes.pattern(re.compile("(?i)ORDERS")).matches("orders")


@pytest.mark.parametrize("number", [0xD800, 0xDABC, 0xDFFF])
def test_a_pattern_that_cannot_be_written_is_refused(number):
    """Half of a pair of surrogates fits into no control record; letters beside them do."""
    half = chr(number)
    with pytest.raises(ScopeSyntaxError) as refused:
        scopes.parse(f"re:orders{half}")
    assert str(refused.value) == (
        f"a pattern must be Unicode text, {'orders' + half!r} cannot be written"
    )
    for written in ("\ud7ff", "\ue000"):
        assert str(scopes.parse(f"re:{written}")) == f"re:{written}"


def test_the_longest_pattern_is_accepted_and_one_letter_more_is_not():
    """The message has the length, not the text."""
    longest = "a" * scopes.MAX_PATTERN_LENGTH
    assert str(scopes.parse(f"re:{longest}")) == f"re:{longest}"
    with pytest.raises(ScopeSyntaxError) as refused:
        scopes.parse(f"re:{longest}a")
    assert str(refused.value) == (
        "a pattern must have 1 to 4096 characters, this one has 4097"
    )
