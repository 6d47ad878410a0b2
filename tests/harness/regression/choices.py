"""The assignors and the ways of reading that regression tests are run with."""

COOPERATIVE = "cooperative-sticky"
ASSIGNORS = ("range", "roundrobin", "sticky", COOPERATIVE)
PROTOCOLS = ("range", COOPERATIVE)
HOWS = ("poll", "iterate")

# Each once, not all pairs: iteration rebalances inside the same `poll`.
ASSIGNORS_AND_HOWS = tuple(zip(ASSIGNORS, HOWS * 2, strict=True))
PROTOCOLS_AND_HOWS = tuple(zip(PROTOCOLS, HOWS, strict=True))
