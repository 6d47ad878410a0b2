"""Hypothesis strategies for brokers' responses."""

from functools import partial

from attrs import evolve, frozen
from hypothesis import strategies as st

from tests.unit.kafka.decoding.batches import (
    ABORT,
    COMMIT,
    Frame,
    Row,
    legacy_sealed,
    many,
    marker,
    sealed,
    written,
)
from tests.unit.kafka.decoding.compare import Aborted, Case

PRODUCERS = (0, 7)
# Timestamps as far apart as the format allows: each one is stored as a 64-bit difference
# from the first timestamp.
_LONG = 2**63 - 1
_TIMES = (
    st.integers(1_600_000_000_000, 1_800_000_000_000)
    | st.integers(-1000, 1000)
    | st.sampled_from((-1, 0, 2**62, -(2**62), 2**53 + 1, _LONG, -_LONG))
    | st.integers(-_LONG, _LONG)
)
_BLOBS = st.none() | st.binary(max_size=20) | st.just(b"x" * 300)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BLOBS), max_size=3).map(tuple)
_GAPS = st.just(0) | st.integers(0, 9)
_COUNTS = st.just(0) | st.just(0) | st.just(0) | st.integers(1, 5000)
TAKES = st.lists(st.integers(0, 9) | st.integers(1, 3000) | st.none(), min_size=1)


@st.composite
def rows(draw, *, magic=2):
    """Draw the records of one batch."""
    row = st.builds(
        Row,
        _TIMES,
        _BLOBS,
        _BLOBS,
        _HEADERS if magic == 2 else st.just(()),
        _GAPS,
    )
    drawn = draw(st.lists(row, min_size=1, max_size=6))
    first = drawn[0].timestamp
    count = draw(_COUNTS)
    return [
        row if abs(row.timestamp - first) < 2**63 else evolve(row, timestamp=first)
        for row in (many(drawn, count) if count else drawn)
    ]


@frozen(kw_only=True)
class _Log:
    """The batches drawn so far, with their open and aborted transactions."""

    data: bytes = b""
    end: int = 0
    opened: tuple[tuple[int, int], ...] = ()
    aborted: tuple[Aborted, ...] = ()

    def plus(self, batch):
        return evolve(self, data=self.data + batch[0], end=batch[1])


@st.composite
def answers(draw):
    """Draw a response with batches of all kinds, and the settings of its reader."""
    log = _Log(end=draw(st.integers(0, 50)))
    first = log.end
    kinds = st.sampled_from(("plain", "plain", "legacy", "data", "data", "marker"))
    for kind in draw(st.lists(kinds, min_size=1, max_size=6)):
        log = draw(_grown(log, kind))
    cut = draw(st.just(0) | st.integers(0, 80))
    extra = st.builds(Aborted, st.sampled_from(PRODUCERS), st.integers(0, log.end))
    return Case(
        data=log.data[: len(log.data) - cut],
        fetch_offset=draw(st.just(first) | st.integers(0, log.end + 2)),
        takes=draw(TAKES),
        drained_after=draw(st.just(40) | st.integers(0, 4)),
        check_crcs=draw(st.booleans()),
        committed=draw(st.booleans()),
        aborted=[*log.aborted, *draw(st.just([]) | st.lists(extra, max_size=2))],
        metrics=draw(st.sampled_from((True, True, False))),
    )


@st.composite
def _grown(draw, log, kind):
    if kind == "marker":
        return draw(_ended(log))
    magic = draw(st.sampled_from((0, 1))) if kind == "legacy" else 2
    producer = draw(st.sampled_from(PRODUCERS)) if kind == "data" else -1
    frame = Frame(
        magic=magic,
        codec=draw(st.integers(0, 4 if magic == 2 else 3)),
        epoch=draw(st.integers(-1, 5)),
        producer=producer,
        transactional=kind == "data" and draw(st.integers(0, 4)) > 0,
        log_append=draw(st.booleans()),
        tail=draw(_GAPS) if magic == 2 else 0,
    )
    if frame.transactional and producer not in dict(log.opened):
        log = evolve(log, opened=(*log.opened, (producer, log.end)))
    return log.plus(written(log.end, draw(rows(magic=magic)), frame))


@st.composite
def _ended(draw, log):
    producer = draw(st.sampled_from(PRODUCERS))
    kind = draw(st.sampled_from((ABORT, COMMIT)))
    opened = dict(log.opened)
    begun = opened.pop(producer, None)
    if begun is not None and kind == ABORT:
        log = evolve(log, aborted=(*log.aborted, Aborted(producer, begun)))
    log = evolve(log, opened=tuple(opened.items()))
    return log.plus(marker(log.end, kind, producer, draw(st.integers(-1, 5))))


# ------------------------------------------------------------ damage

_LONGEST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1 as a varint
_HITS = st.lists(
    st.tuples(
        st.integers(0, 500),
        st.sampled_from(("replace", "replace", "cut", "delete", "insert", "varint")),
        st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=3,
)
_SEALED_FROM = 61  # batches with fewer bytes do not get a correct checksum


def _hit(data, hits):
    broken = bytearray(data)
    for place, kind, piece in hits:
        at = place % (len(broken) + 1)
        match kind:
            case "replace":
                broken[at : at + len(piece)] = piece
            case "cut":
                del broken[at:]
            case "delete":
                del broken[at : at + len(piece)]
            case "insert":
                broken[at:at] = piece
            case _:
                broken[at : at + 1] = _LONGEST[piece[0] % 10 :]
    return bytes(broken)


@st.composite
def damaged_answers(draw):
    """Draw a response with one damaged batch, perhaps between sound batches."""
    first = draw(st.sampled_from((0, 3, 2**40)))
    before, at = b"", first
    if draw(st.booleans()):
        before, at = written(first, draw(rows()), Frame(codec=3))
    magic = draw(st.sampled_from((2, 2, 2, 1, 0)))
    frame = Frame(
        magic=magic,
        codec=draw(st.integers(0, 4 if magic == 2 else 3)),
        producer=7,
        transactional=draw(st.booleans()),
        log_append=draw(st.booleans()),
    )
    hit = partial(_hit, hits=draw(_HITS))
    is_inside = magic == 2 and draw(st.booleans())
    spoil = hit if is_inside else bytes
    batch, end = written(at, draw(rows(magic=magic)), frame, spoil)
    if not is_inside:
        batch = hit(batch)
    if len(batch) >= _SEALED_FROM and draw(st.integers(0, 5)):
        batch = bytes((sealed if magic == 2 else legacy_sealed)(batch))
    after = written(end, [Row(5, b"k", b"v")], Frame())[0]
    return Case(
        data=before + batch + draw(st.sampled_from((b"", after))),
        fetch_offset=draw(st.sampled_from((first, at, at + 1, end, end + 3))),
        takes=draw(TAKES),
        check_crcs=draw(st.booleans()),
        committed=draw(st.booleans()),
        aborted=draw(st.sampled_from(([], [Aborted(7, at)]))),
    )
