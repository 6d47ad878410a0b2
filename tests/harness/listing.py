"""Names cases of ``pytest.mark.parametrize`` that pytest would only number."""


def short(value):
    """
    Return a name or the first characters; None, and pytest decides, for an address.

    Sets have no order that another process would share: theirs is that of the texts.
    """
    if name := getattr(value, "__name__", None):
        return name
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    text = ascii(value)
    return None if " at 0x" in text else text[:40]
