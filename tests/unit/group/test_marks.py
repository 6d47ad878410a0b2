"""Pauses that travel: read back as written, bounded, and never an exception."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer._kafka.handover import envelope, marks
from safeconsumer._kafka.handover.envelope import Direction
from safeconsumer._kafka.handover.marks import Mark
from safeconsumer.holds.merge import Register, merge
from tests.harness.listing import each
from tests.unit.group.patience import patient

text = st.text(max_size=50)
owners = st.text("0123456789abcdef", min_size=8, max_size=8)
some_marks = st.builds(Mark, generation=st.integers(0, 2**32 - 1), owner=owners)
registers = st.builds(
    lambda generation, is_held: Register((generation, 0), is_held),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
maps = st.dictionaries(
    st.tuples(st.sampled_from(["orders", "audit", "a.b-c_d"]), st.integers(0, 40)),
    registers,
    min_size=1,
)


@patient
@given(some_marks, text)
def test_a_mark_and_the_users_metadata_are_read_as_written(
    mark: Mark, user: str
) -> None:
    written = marks.attach(mark, user)
    assert written is not None
    assert marks.split(written) == (mark, user)
    assert len(written) - len(user) <= marks.MAX_MARK_BYTES


@patient
@given(text | st.none())
def test_metadata_without_a_mark_is_the_users(user: str | None) -> None:
    assert marks.split(user) == (None, user or "")


@patient
@given(some_marks, text, st.data())
def test_a_damaged_mark_never_raises(
    mark: Mark, user: str, data: st.DataObject
) -> None:
    """It is a mark of some sort, or the user's."""
    written = list(marks.attach(mark, user) or "")
    at = data.draw(st.integers(0, len(written) - 1))
    written[at : at + 1] = data.draw(st.text(max_size=2))
    marks.split("".join(written))


def test_a_mark_of_a_later_version_holds() -> None:
    found, user = marks.split("\x1fsc7:whatever:more;mine")
    assert (found is not None and found.version, user) == (7, "mine")


def test_a_later_mark_of_the_known_form_keeps_its_version_and_generation() -> None:
    """A member that knows it must see that it is later than its own."""
    found = marks.split("\x1fsc2:1f:0000abcd;mine")
    assert found == (Mark(0x1F, "0000abcd", 2), "mine")


@each(
    "text",
    [
        "\x1fsc1:whatever;mine",
        "\x1fsc0:1:0000abcd;mine",
        "\x1fsc0:whatever;mine",
        "\x1fsc7:whatever",
        "\x1fsc7;mine",
        "\x1fscx:1:0000abcd;mine",
    ],
)
def test_what_merely_begins_like_a_mark_is_the_users(text: str) -> None:
    """A first version of another form, a version 0, or no end of the mark."""
    assert marks.split(text) == (None, text)


def test_a_mark_fits_up_to_what_a_broker_takes_and_not_beyond() -> None:
    """4,096 bytes with the mark; letters beyond ASCII count by their bytes."""
    room = marks.MAX_METADATA_BYTES - len(marks.attach(Mark(7), None) or "")
    full = marks.attach(Mark(7), "x" * room)
    assert full is not None
    assert len(full) == marks.MAX_METADATA_BYTES
    assert marks.attach(Mark(7), "x" * (room + 1)) is None
    assert marks.attach(Mark(7), "\u00fc" * (room // 2)) is not None
    assert marks.attach(Mark(7), "\u00fc" * (room // 2 + 1)) is None


def test_half_a_pair_of_surrogates_is_no_error() -> None:
    """A listener's metadata may have one; kafka-python decides what to do with it."""
    written = marks.attach(Mark(7), "\ud800")
    assert marks.split(written) == (Mark(7), "\ud800")


def test_no_room_is_told_rather_than_truncated() -> None:
    assert marks.attach(Mark(), "x" * 4090) is None
    assert marks.attach(Mark(), "x" * 4000) is not None


@pytest.mark.parametrize("direction", list(Direction))
@patient
@given(inner=st.binary(max_size=60), held=maps)
def test_an_envelope_is_read_as_written(
    direction: Direction, inner: bytes, held: dict[tuple[str, int], Register]
) -> None:
    whole = envelope.wrap(inner, held, direction)
    assert whole.startswith(inner)
    found_inner, found = envelope.unwrap(whole)
    assert found_inner == inner
    assert found is not None
    assert (found.direction, dict(found.marks)) == (direction, held)


@patient
@given(st.binary(max_size=60))
def test_without_marks_there_is_no_envelope(inner: bytes) -> None:
    """Bytes are those of a plain client: KIP-848 upgrades stay possible."""
    assert envelope.wrap(inner, {}, Direction.SUBSCRIPTION) == inner


@patient
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_never_raise(data: bytes, has_magic: bool) -> None:  # noqa: FBT001 - drawn
    data = data + envelope.MAGIC if has_magic else data
    envelope.unwrap(data)


@patient
@given(st.binary(max_size=60), maps, st.data())
def test_a_mutated_envelope_is_rejected_or_intact(
    inner: bytes, held: dict[tuple[str, int], Register], data: st.DataObject
) -> None:
    whole = bytearray(envelope.wrap(inner, held, Direction.ASSIGNMENT))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + 1] = data.draw(st.binary(max_size=2))
    _, found = envelope.unwrap(bytes(whole))
    assert found is None or dict(found.marks) == held


@patient
@given(st.binary(max_size=300), st.sampled_from([0, 1]))
def test_a_garbage_payload_with_a_good_checksum_never_raises(
    payload: bytes, flags: int
) -> None:
    whole = sealed(payload, flags)
    inner, _ = envelope.unwrap(b"inner" + whole)
    assert inner == b"inner"


def sealed(payload: bytes, flags: int, version: int = 1) -> bytes:
    header = envelope._HEADER
    bare = header.pack(len(payload), 0, version, 1, flags, 0)
    check = zlib.crc32(bare, zlib.crc32(payload))
    return (
        payload
        + header.pack(len(payload), check, version, 1, flags, 0)
        + envelope.MAGIC
    )


def test_bombs_are_defused() -> None:
    """50 MB of zeros in 50 KB; a range of everything in a few bytes."""
    bomb = zlib.compress(b"\0" * 50_000_000, 9)
    vast = b"\x01\x01\x01\x01\x01a\x01\x00\xff\xff\xff\xff\x07"
    assert envelope.unwrap(sealed(bomb, 1))[1] is None
    assert envelope.unwrap(sealed(vast, 0))[1] is None


def test_partitions_in_a_row_are_one_range_and_gaps_stay_gaps() -> None:
    """Ten thousand paused partitions of one generation take the room of a few."""
    one, other = Register((7, 0), is_held=True), Register((7, 0), is_held=False)
    held = [*range(3), 5, 7, 8, *range(20, 10_000)]
    several = {("orders", number): one for number in held}
    several |= {("orders", 4): other, ("orders", 6): other, ("audit", 5): one}
    written = envelope.wrap(b"inner", several, Direction.SUBSCRIPTION)
    assert len(written) < 100
    inner, found = envelope.unwrap(written)
    assert inner == b"inner"
    assert found is not None
    assert found.marks == several


def test_too_many_marks_are_left_out() -> None:
    """A group whose metadata does not fit into one record cannot rebalance again."""
    one = Register((7, 0), is_held=True)
    most = envelope.MAX_PARTITIONS
    in_a_row = {("orders", number): one for number in range(most + 1)}
    assert envelope.wrap(b"inner", in_a_row, Direction.SUBSCRIPTION) == b"inner"
    del in_a_row["orders", 0]
    fits = envelope.wrap(b"inner", in_a_row, Direction.SUBSCRIPTION)
    found = envelope.unwrap(fits)[1]
    assert found is not None
    assert len(found.marks) == most
    scattered = {("orders", 2 * number): one for number in range(most)}
    assert envelope.wrap(b"inner", scattered, Direction.SUBSCRIPTION) == b"inner"


def ranges_of(*ranges: tuple[int, int]) -> bytes:
    """One section, held in generation 5, with these ranges of the topic ``a``."""
    head = bytes([1, 1, 5, 1, 1]) + b"a" + bytes([len(ranges)])
    numbers = [number for one in ranges for number in one]
    return head + b"".join(map(varint, numbers))


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


@each(
    ("ranges", "is_read"),
    [
        ([(0, 2), (3, 1)], True),
        ([(0, envelope.MAX_PARTITIONS)], True),
        ([(0, envelope.MAX_PARTITIONS + 1)], False),
        ([(0, envelope.MAX_PARTITIONS), (0, 1)], False),
        ([(2**31 - 1, 1)], True),
        ([(2**31 - 1, 2)], False),
    ],
)
def test_ranges_beyond_what_a_group_can_have_are_refused(
    ranges: list[tuple[int, int]],
    is_read: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Thirty bytes may not become a billion entries."""
    inner, found = envelope.unwrap(sealed(ranges_of(*ranges), 0))
    assert inner == b""
    assert (found is not None) is is_read
    if found is not None:
        assert len(found.marks) == sum(count for _, count in ranges)


def test_of_two_marks_of_a_partition_the_later_one_counts() -> None:
    """In whatever order a member has written them."""
    sections = [
        bytes([is_held, at, 1, 1]) + b"a\x01\x00\x01"
        for is_held, at in [(1, 5), (0, 3)]
    ]
    for several in (sections, sections[::-1]):
        found = envelope.unwrap(sealed(b"\x02" + b"".join(several), 0))[1]
        assert found is not None
        assert found.marks == {("a", 0): Register((5, 0), is_held=True)}


def test_a_later_version_is_taken_off_all_the_same() -> None:
    """The inner assignor must not see it."""
    assert envelope.unwrap(b"inner" + sealed(b"new", 0, version=9)) == (b"inner", None)


@patient
@given(maps, maps)
def test_merging_what_was_read_is_merging_what_was_written(
    a: dict[tuple[str, int], Register], b: dict[tuple[str, int], Register]
) -> None:
    def through(
        one: dict[tuple[str, int], Register],
    ) -> dict[tuple[str, int], Register]:
        found = envelope.unwrap(envelope.wrap(b"", one, Direction.SUBSCRIPTION))[1]
        assert found is not None
        return dict(found.marks)

    assert merge(through(a), through(b)) == merge(a, b)
