"""``seek()`` in a signal handler, in the middle of a poll on the same thread."""

from typing import Any

import pytest

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader


@pytest.mark.contract("P8")
@simulated()
@pytest.mark.parametrize("is_noted", [False, True])
def test_where_a_handler_seeks_reading_goes_on(lab: Lab, is_noted: bool) -> None:  # noqa: FBT001 - a parameter
    """
    P8: a drain compares the position with the batch's, and moves it some calls later.

    A handler comes in between on the same thread, for which the lock is no obstacle.
    """
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, SafeConsumer, tps=[tp])
    consumer = reader.consumer
    undelivered = consumer._subscription.undelivered
    usual, sought = undelivered.note, list[int]()

    def note(*about: Any) -> None:  # noqa: ANN401 - as upstream's
        if is_noted:
            usual(*about)
        if not sought:
            sought.append(7)
            consumer.seek(tp, 7)
        if not is_noted:
            usual(*about)

    undelivered.note = note
    while not sought:
        reader.poll(limit=3)
    assert consumer.position(tp) == 7
    reader.log.clear()
    for _ in range(10):
        reader.poll(limit=3)
    assert [record.offset for record in reader.log] == [7, 8, 9]
    assert consumer.position(tp) == 10
