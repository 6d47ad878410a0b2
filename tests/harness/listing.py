"""Names cases of ``pytest.mark.parametrize`` that pytest would only number."""


def short(value):
    """Return a name or the first characters; None, and pytest decides, for an address."""
    name = getattr(value, "__name__", None) or f"{value!r:.40}"
    return None if " at 0x" in name or "object at" in name else name
