"""Makes ids for parameters of ``pytest.mark.parametrize`` that pytest would only number."""


def short(value):
    """
    Return a value's name or the start of its repr; None if the repr has an address.

    The elements of a set are sorted by their repr, because a set's iteration order
    differs between processes. If the function returns None, pytest chooses the id.
    """
    if name := getattr(value, "__name__", None):
        return name
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    text = ascii(value)
    return None if " at 0x" in text else text[:40]
