"""S1 by the dozen: no batch that is planned after a pause moves held partitions."""

import json
import threading

import pytest
from attrs import frozen
from kafka import KafkaProducer

from safeconsumer.spark import offsets
from safeconsumer.spark.stream import Stream
from tests.harness.spark.lake import progress, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(600)]


@frozen
class Planned:
    """One plan: the hold during which it began, and how far it moved the held topic."""

    toggle: int | None
    moved: int
    waiting: int


class Log:
    """Every plan, seen from where Python is asked."""

    def __init__(self, topic, monkeypatch):
        self.topic = topic
        self.toggle = None  # set once pause() returned, until resume()
        self.plans = []
        plan = Stream.plan

        def on_plan(stream, facts):
            began = self.toggle
            answer = plan(stream, facts)
            # Else it may have looked for holds after resume() was called.
            toggle = began if self.toggle == began else None
            start, latest = self._of(stream._plan.start), self._of(stream._plan.latest)
            end = self._sum(answer["end"])
            self.plans.append(Planned(toggle, end - start, latest - start))
            return answer

        monkeypatch.setattr(Stream, "plan", on_plan)

    def _sum(self, text):
        return self._of(offsets.parse(text))

    def _of(self, found):
        return sum(one for tp, one in found.items() if tp[0] == self.topic)

    def ended(self, query):
        """How far the last batch went; with nothing held no end is asked here."""
        batches = progress(query)
        end = batches[-1]["sources"][0]["endOffset"] if batches else None
        return 0 if end is None else self._sum(json.dumps(end))

    def of(self, toggle):
        return [one for one in self.plans if one.toggle == toggle]


@pytest.mark.contract("S1")
def test_no_plan_after_a_hold_moves_the_held_topic(lake, controller, monkeypatch):
    """Under load, each time with records waiting; nothing is lost or twice in the end."""
    log = Log(lake.orders, monkeypatch)
    loading = threading.Event()
    producer = KafkaProducer(**lake.broker.client_config, linger_ms=5)
    sent = []

    def load():
        while not loading.wait(0.005):
            for topic in (lake.orders, lake.returns):
                partition = len(sent) % lake.partitions
                sent.append(producer.send(topic, b"x", partition=partition))

    loader = threading.Thread(target=load)
    loader.start()
    query = lake.start(trigger={"processingTime": "0 seconds"})
    try:
        for toggle in range(15):
            controller.pause(lake.orders, reason=f"toggle {toggle}")
            log.toggle = toggle
            until(lambda now=toggle: any(one.waiting for one in log.of(now)), query)
            log.toggle = None
            controller.resume(lake.orders)
            stood = log.ended(query)
            until(lambda now=stood: log.ended(query) > now, query)
    finally:
        loading.set()
        loader.join()
    assert [one for one in log.plans if one.toggle is not None and one.moved] == []
    for future in sent:
        written = future.get(30)
        lake.expected[written.topic, written.partition, written.offset] += 1
    producer.close()
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()
