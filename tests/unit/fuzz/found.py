"""Inputs that broke a promise once; each target is fed them in every test run."""

FOUND = {
    # An endless expiry was infinity seconds.
    "duration": (b"9" * 400 + b"s",),
    "journal": (
        # Counts below zero have no logarithm.
        (
            b'"e":"assigned","partitions":["x:0"]\n"e":"deliver","tp":"x:0",'
            b'"from":9,"next":-5,"first":9,"last":-4,"count":-7'
        ),
    ),
    # Python converts no number of so many digits.
    "properties": (b"retry.backoff.ms=" + b"9" * 5000,),
    "settings": (
        # Whole numbers beyond all floats are not finite, and not comparable to any.
        b'{"limits":{"age":1%b}}' % (b"0" * 400),
        b'{"control":{"run_after":1%b}}' % (b"0" * 400),
    ),
}
