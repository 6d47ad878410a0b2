"""
What a span of a worker's attempt costs.

CPU per call of a handler that does nothing, less what it takes without a span; the best
of many short runs, since others use the machine, too.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator

from kafka import TopicPartition
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from safeconsumer.testing import make_record
from safeconsumer.worker.handlers import Context
from safeconsumer.worker.settings import Tracing
from safeconsumer.worker.tracing import Tracer
from tests.bench.figures import Figure, Row
from tests.bench.stage import Stage

TP = TopicPartition("orders", 3)
SENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_CALLS, _RUNS = 300, 200

Call = Callable[[], object]


def cpu(call: Call, runs: int) -> float:
    """Return the microseconds of CPU of one call."""
    best = float("inf")
    for _ in range(runs):
        began = time.process_time()
        for _ in range(_CALLS):
            call()
        best = min(best, (time.process_time() - began) / _CALLS)
    return 1e6 * best


def handle(_record: object, _context: object) -> None:
    """Do nothing."""


def attempts() -> Iterator[tuple[str, Call]]:
    """Yield each way to make a span, and its call."""
    context = Context(TP, 1, 1, threading.Event(), lambda: None)
    plain = make_record(b"v", b"k", topic=TP.topic, partition=3, offset=7)
    sent = plain._replace(headers=[("traceparent", SENT)])
    providers = {
        "API alone": None,
        "SDK": TracerProvider(),
        "SDK, not sampled": TracerProvider(sampler=ALWAYS_OFF),
    }
    yield "no span", lambda: handle(sent, context)
    for name, provider in providers.items():
        for parent in (False, True):
            setting = Tracing(parent=parent, provider=provider)
            tracer = Tracer(setting, "g", "c", ("localhost:9092",), is_batch=False)
            call = tracer.around(handle)
            how = "as parent" if parent else "linked"
            yield f"{name}, {how}", lambda call=call: call(sent, context)  # type: ignore[misc]  # bound here
        yield f"{name}, no context", lambda call=call: call(plain, context)  # type: ignore[misc]  # likewise


def spans(stage: Stage) -> Iterator[Figure]:
    """Call each of them so many times that the best run was disturbed by nothing."""
    runs = max(1, _RUNS // stage.sizes.scale)
    gc.disable()
    bare = 0.0
    for number, (name, call) in enumerate(attempts()):
        took = cpu(call, runs)
        bare = bare if number else took  # the first one is without a span
        yield Figure("spans", name, took - bare, "us", at_most=25.0 if number else None)
    gc.enable()


ROWS: dict[str, Row] = {"spans": spans}
