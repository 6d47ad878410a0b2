"""Compares records per second, CPU per record and peak memory of all clients."""

from attrs import field, frozen

from tests.bench.figures import median, ratio
from tests.bench.stage import Case
from tests.bench.workers import lapped

SPEED, CPU = "records/s", "CPU per record"
LAPS = 4  # in each round
STOCK, OURS, TUNED = "kafka-python", "safe-compiled", "confluent-kafka, tuned"
CLIENTS = (STOCK, OURS, "aiokafka", TUNED)
# The size of a topic in bytes. With values of 100 bytes a client needs over a second to
# read the topic. Topics with larger values have fewer records, and a client reads them
# repeatedly.
_BYTES = 300_000_000
_STEP = 2_400  # a divisor of the number of records in each case
_ALONE = 20  # the factor by which one-record batches slow a broker down


@frozen(kw_only=True)
class Row:
    """One comparison: its records, its calls and its targets."""

    title: str  # the title in the pages' tables
    case: Case = field(factory=Case)
    max_records: int | None = 500  # the largest number per call; None means iteration
    how: dict = field(factory=dict)  # more settings for each variant
    cpu: float | None = None  # the limit, as a multiple of kafka-python's CPU
    speed: dict = field(factory=dict)  # for each client, the minimum as a ratio


SMALL = Case()
_LARGE = {
    codec: Case(size=1_000, codec=codec) for codec in ("none", "lz4", "snappy", "zstd")
}
_PAUSED = Case(partitions=20, empty=980)

READING = {
    "5000": Row(
        title="`poll(max_records=5000)`",
        max_records=5000,
        cpu=0.20,
        speed={"aiokafka": 1.0, TUNED: 1.12},
    ),
    "500": Row(title="`poll()`", cpu=0.25, speed={"aiokafka": 1.2, TUNED: 1.53}),
    "iteration": Row(
        title="iteration",
        max_records=None,
        cpu=0.35,
        speed={"aiokafka": 2.0, TUNED: 1.87},
    ),
    "deserializer": Row(
        title="with a `value_deserializer`",
        how={"deserializes": True},
        speed={STOCK: 2.5, "aiokafka": 1.1, TUNED: 0.7},
    ),
    "core": Row(title="on one core", how={"is_on_one_core": True}),
    "alone": Row(
        title="each record in a batch of its own, as with `linger_ms=0`",
        case=Case(is_alone=True),
        speed={"aiokafka": 1.5, TUNED: 0.85},
    ),
    "headers": Row(title="3 headers", case=Case(headers=3), how={"has_headers": True}),
    "committed": Row(
        title="`read_committed`, a quarter aborted",
        case=Case(is_transactional=True),
        how={"is_committed": True},
    ),
    "compacted": Row(
        title="compacted, every second record is gone", case=Case(is_compacted=True)
    ),
    "paused": Row(title="1,000 partitions, 980 of them paused", case=_PAUSED),
    "paused-5000": Row(
        title="the same, `poll(max_records=5000)`",
        case=_PAUSED,
        max_records=5000,
        speed={TUNED: 1.47},
    ),
    "1KB": Row(
        title="1 KB, `poll(max_records=5000)`",
        case=_LARGE["none"],
        max_records=5000,
        speed={"aiokafka": 2.0, TUNED: 0.77},
    ),
    **{
        f"1KB-{codec}": Row(
            title=f"1 KB, {codec}, `poll(max_records=5000)`",
            case=_LARGE[codec],
            max_records=5000,
            cpu=0.30,
            speed={TUNED: least},
        )
        for codec, least in (("snappy", 0.74), ("zstd", 0.8), ("lz4", 0.90))
    },
    "1KB-lz4-core": Row(
        title="1 KB, lz4, `poll(max_records=5000)`, on one core",
        case=_LARGE["lz4"],
        max_records=5000,
        how={"is_on_one_core": True},
    ),
    "10KB": Row(title="10 KB", case=Case(size=10_000), speed={TUNED: 0.55}),
}


def read(stage, row, variants, laps=LAPS):
    """Let all variants read the same records; return us per record, and the peak MB."""
    case = row.case
    each = (case.size + 20) * (_ALONE if case.is_alone else 1) * stage.sizes.scale
    records = max(1, _BYTES // each // _STEP) * _STEP
    topic = stage.shared(case, records)
    where = {"partitions": case.partitions + case.empty, "quiet": case.empty}
    how = {**where, "max_records": row.max_records, **row.how}
    kinds = {
        name: stage.reader(topic=topic, **how, **one) for name, one in variants.items()
    }
    taken = lapped(
        kinds,
        "read",
        rounds=stage.sizes.rounds,
        laps=laps,
        warm_up={"seconds": stage.sizes.seconds / 4},
        records=case.readable(records),
        seconds=stage.sizes.seconds,
    )
    for what in ("cpu", "wall"):
        for name, values in taken[what].items():
            pairs = zip(values, taken["records"][name], strict=True)
            taken[what][name] = [value / count * 1e6 for value, count in pairs]
    return taken


def compared(stage, name):
    """Yield each client's figures, and the ratios of ours to the other clients' figures."""
    row = READING[name]
    taken = read(stage, row, {one: {"client": one} for one in CLIENTS})
    cpu = taken["cpu"]
    speed = {one: [1e6 / v for v in taken["wall"][one]] for one in CLIENTS}
    for one in CLIENTS:
        yield median(name, f"{SPEED}, {one}", speed[one], "1/s")
        yield median(name, f"{CPU}, {one}", cpu[one], "us")
        yield median(name, f"peak, {one}", taken["peak"][one], "MB")
    for one in CLIENTS:
        if one != OURS:
            most = row.cpu if one == STOCK else None
            least = row.speed.get(one)
            yield ratio(name, f"{CPU} / {one}", cpu, OURS, one, at_most=most)
            yield ratio(name, f"{SPEED} / {one}", speed, OURS, one, at_least=least)


ROWS = {name: lambda stage, name=name: compared(stage, name) for name in READING}
