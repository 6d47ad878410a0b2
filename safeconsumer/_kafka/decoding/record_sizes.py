"""
How many bytes records have, told by their length fields alone.

Upstream reports the sum of these to its fetch metrics. Adding up ten thousand varints
in Python costs as much as decoding the records does in C, hence the short cut.
"""

_MORE = 0x80
# Runs shorter than this are cheaper to read one by one.
_WORTH_COMPARING = 8
# So many are read one by one before equal lengths are looked for again.
_ONE_BY_ONE = 128


def record_bytes(payload: bytes, count: int, at: int = 0) -> int:
    """
    Add up the sizes of the first records of an uncompressed record section.

    Args:
        payload: the records, one after the other, each behind its length.
        count: how many there are to add up.
        at: where the first begins.

    Returns:
        The sum of the length fields, which do not count themselves.
    """
    total = 0
    while count:
        run = _equal_run(payload, at, count) if count >= _WORTH_COMPARING else 1
        size, body = _length_at(payload, at)
        total += size * run
        at += (body - at + size) * run
        count -= run
        if run < _WORTH_COMPARING:
            for _ in range(min(count, _ONE_BY_ONE)):
                size, body = _length_at(payload, at)
                total += size
                at = body + size
                count -= 1
    return total


def _equal_run(payload: bytes, at: int, count: int) -> int:
    # Records of one length stand one stride apart and begin with the same prefix; and
    # the other way round, by induction: where the prefix stands, a record begins.
    size, body = _length_at(payload, at)
    stride = body - at + size
    end = at + stride * count
    run = count
    for start in range(at, body):
        column = payload[start:end:stride]
        run = min(run, len(column) - len(column.lstrip(column[:1])))
    return run


def _length_at(payload: bytes, at: int) -> tuple[int, int]:
    # A zigzag varint that is not negative; and where it ends.
    byte = payload[at]
    size, shift = byte & ~_MORE, 7
    while byte & _MORE:
        at += 1
        byte = payload[at]
        size |= (byte & ~_MORE) << shift
        shift += 7
    return size >> 1, at + 1
