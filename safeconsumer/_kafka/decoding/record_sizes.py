"""
Adds up the sizes of records from their length fields alone.

Upstream reports this sum to its fetch metrics. Adding up ten thousand varints in Python
costs as much as decoding the records does in C, so runs of equal lengths are counted
together.
"""

_MORE = 0x80
# Runs shorter than this are cheaper to read one by one.
_WORTH_COMPARING = 8
# After this many were read one by one, equal lengths are looked for again.
_ONE_BY_ONE = 128


def record_bytes(payload: bytes, count: int, at: int = 0) -> int:
    """
    Add up the sizes of the first records of an uncompressed record section.

    Args:
        payload: the records, one after the other, each behind its length.
        count: how many records to add up.
        at: the offset at which the first begins, in bytes.

    Returns:
        The sum of the length fields, in bytes; the fields themselves do not count.
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
    # Records of one length are one stride apart and begin with the same prefix. The
    # reverse holds by induction: where the prefix is found, a record begins.
    size, body = _length_at(payload, at)
    stride = body - at + size
    end = at + stride * count
    run = count
    for start in range(at, body):
        column = payload[start:end:stride]
        run = min(run, len(column) - len(column.lstrip(column[:1])))
    return run


def _length_at(payload: bytes, at: int) -> tuple[int, int]:
    # Returns a zigzag varint that is not negative, and where it ends.
    byte = payload[at]
    size, shift = byte & ~_MORE, 7
    while byte & _MORE:
        at += 1
        byte = payload[at]
        size |= (byte & ~_MORE) << shift
        shift += 7
    return size >> 1, at + 1
