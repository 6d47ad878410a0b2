"""Names cases of ``pytest.mark.parametrize`` that pytest would number."""


def short(value):
    """
    Return a name or the first characters; None, so that pytest decides, for an address.

    Elements of a set are sorted by their texts, as each process has another order.
    """
    if name := getattr(value, "__name__", None):
        return name
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    text = ascii(value)
    return None if " at 0x" in text else text[:40]
