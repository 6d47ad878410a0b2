"""Compares the CPU use of members on other clients with the libraries' own consumers."""

from tests.bench.figures import median, ratio
from tests.bench.workers import lapped

_PARTITIONS = 8
_RECORDS = 200_000
_NOTE = (
    "CPU of the thread that reads fetched records of 100 bytes, and looks at "
    "their keys, values and offsets"
)
# For each method: the client, the largest number of records per call, and the limit as
# a multiple of the stock client's CPU.
_CALLS = {
    "poll": ("confluent-kafka, tuned", None, 1.5),
    "consume": ("confluent-kafka, tuned", 500, 1.2),
    "getone": ("aiokafka", None, 1.5),
    "getmany": ("aiokafka", 500, 1.2),
}


def compared(stage, call, *, is_held):
    """Let both consumers read the same records; if ``is_held``, ours reads under a hold."""
    client, max_records, most = _CALLS[call]
    records = _RECORDS // stage.sizes.scale
    topic = stage.topic(_PARTITIONS, empty=1, records=records)
    how = {"partitions": _PARTITIONS + 1, "quiet": int(is_held)}
    how |= {"max_records": max_records, "largest_fetch": 2**24}
    kinds = {
        name: stage.reader(client, topic, is_ours=name == "ours", **how)
        for name in ("stock", "ours")
    }
    rounds = stage.sizes.rounds
    taken = lapped(kinds, "read_fetched", rounds=rounds, laps=2, records=records)
    stage.drop(topic)
    row, cpu = f"{call}-held" if is_held else call, taken["cpu_us"]
    yield median(row, "CPU per record", cpu["ours"], "us")
    most = None if is_held else most
    yield ratio(row, "over its own", cpu, "ours", "stock", at_most=most, note=_NOTE)


ROWS = {
    f"{call}-held" if is_held else call: lambda stage, call=call, is_held=is_held: (
        compared(stage, call, is_held=is_held)
    )
    for call in _CALLS
    for is_held in (False, True)
}
