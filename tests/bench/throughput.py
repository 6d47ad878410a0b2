"""Records per second, CPU per record and peak memory of all clients, side by side."""

from attrs import frozen

from tests.bench.figures import median, ratio
from tests.bench.stage import Case
from tests.bench.workers import lapped

SPEED, CPU = "records/s", "CPU per record"
_LAPS = 2
_STOCK, _OURS = "kafka-python", "safe-compiled"
_CLIENTS = (
    _STOCK,
    "safe-python",
    _OURS,
    "aiokafka",
    "confluent poll",
    "confluent poll tuned",
    "confluent consume",
    "confluent consume tuned",
)
# More records of 100 B than confluent-kafka's queue holds at its defaults (100,000): it
# waits for a second then.
_BYTES = 36_000_000

SMALL, LZ4 = Case(), Case(size=1_000, codec="lz4")
_PACKED = (LZ4, *(Case(size=1_000, codec=one) for one in ("zstd", "snappy")))
CASES = (SMALL, *_PACKED)


@frozen(kw_only=True)
class Mode:
    name: str  # as kafka-python calls it
    max_records: int | None  # at most so many in one call; None for one by one

    def clients(self):
        """Yield the clients that can read so; confluent's ``poll`` gives one at a time."""
        single = self.max_records is None
        other = "confluent consume" if single else "confluent poll"
        return (client for client in _CLIENTS if not client.startswith(other))


_5000 = Mode(name="poll(max_records=5000)", max_records=5000)
_500 = Mode(name="poll(max_records=500)", max_records=500)
_ITERATION = Mode(name="iteration", max_records=None)
MODES = (_5000, _500, _ITERATION)

_CPU_TARGETS = {
    (SMALL, _5000): 0.20,
    (SMALL, _500): 0.25,
    (SMALL, _ITERATION): 0.35,
    **{(case, _5000): 0.30 for case in _PACKED},
}
_SPEED_TARGETS = {
    (SMALL, _5000, "aiokafka"): 1.0,
    (SMALL, _500, "aiokafka"): 1.2,
    (SMALL, _ITERATION, "aiokafka"): 2.0,
    (SMALL, _5000, "confluent consume tuned"): 1.2,
    (SMALL, _500, "confluent consume tuned"): 0.6,
    (SMALL, _500, "confluent consume"): 4.0,
    (SMALL, _ITERATION, "confluent poll tuned"): 1.0,
    **{(case, _5000, "confluent consume tuned"): 0.8 for case in _PACKED},
}


def read(stage, case, mode, arms, laps=_LAPS):
    """Let arms read the same records; return us per record, and the peak in MB."""
    records = max(2_400, _BYTES // stage.sizes.scale // (case.size + 20))
    topic = stage.filled(case, records)
    where = {"partitions": case.partitions, "max_records": mode.max_records}
    kinds = {
        name: stage.reader(topic=topic, **where, **arm) for name, arm in arms.items()
    }
    rounds = stage.sizes.rounds
    taken = lapped(kinds, "read", rounds=rounds, laps=laps, records=records)
    stage.drop(topic)
    for what in ("cpu", "wall"):
        for name, values in taken[what].items():
            taken[what][name] = [value / records * 1e6 for value in values]
    return taken


def compared(stage, case, mode):
    """Yield what each client takes, and the ratios of ours to each other one."""
    kinds = list(mode.clients())
    taken = read(stage, case, mode, {one: {"client": one} for one in kinds})
    row = f"{case.name}, {mode.name}"
    cpu = taken["cpu"]
    speed = {one: [1e6 / v for v in taken["wall"][one]] for one in kinds}
    for one in kinds:
        yield median(row, f"{SPEED}, {one}", speed[one], "1/s")
        yield median(row, f"{CPU}, {one}", cpu[one], "us")
        yield median(row, f"peak, {one}", taken["peak"][one], "MB")
    for one in kinds:
        if one != _OURS:
            most = _CPU_TARGETS.get((case, mode)) if one == _STOCK else None
            least = _SPEED_TARGETS.get((case, mode, one))
            yield ratio(row, f"{CPU} / {one}", cpu, _OURS, one, at_most=most)
            yield ratio(row, f"{SPEED} / {one}", speed, _OURS, one, at_least=least)


ROWS = {
    f"{case.name}, {mode.name}": lambda stage, case=case, mode=mode: compared(
        stage, case, mode
    )
    for case in CASES
    for mode in MODES
}
