"""Makes ids for cases of ``pytest.mark.parametrize`` that pytest would only number."""


def short(value):
    """
    Return a value's name or the start of its text; None for a text with an address.

    The elements of a set are sorted by their texts, because the order of iteration
    differs between processes. If the function returns None, pytest makes the id.
    """
    if name := getattr(value, "__name__", None):
        return name
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    text = ascii(value)
    return None if " at 0x" in text else text[:40]
