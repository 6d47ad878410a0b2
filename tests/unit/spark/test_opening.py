"""Which cluster each client of a stream is made for."""

from types import SimpleNamespace

import pytest

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import offsets, options
from safeconsumer.spark.committing import MARK
from safeconsumer.spark.opening import Opening

ORDERS = "orders", 0


class Clusters:
    """Makes clients that note for which cluster they were made."""

    def __init__(self):
        self.asked = []

    def __call__(self, properties):
        where = properties["bootstrap.servers"]
        return SimpleNamespace(
            errors=(OSError,),
            cluster=lambda: Cluster(where, self.asked),
            holds_topic=lambda _: Unreachable(where, self.asked),
        )


class Unreachable:
    position = None

    def __init__(self, where, asked):
        self._where, self._asked = where, asked

    def connect(self):
        self._asked.append(("holds", self._where))
        raise OSError

    def reason(self, _error):
        return "no broker answered"

    def close(self):
        pass


class Cluster:
    errors = (OSError,)

    def __init__(self, where, asked):
        self._where, self._asked = where, asked

    def _ask(self, question, answer=None):
        self._asked.append((question, self._where))
        return answer

    def firsts(self, partitions, _until):
        return self._ask("firsts", dict.fromkeys(partitions, 0))

    def topic_ids(self, names, _until):
        return self._ask("topic_ids", dict.fromkeys(names, "a"))

    def group(self, _name, _until):
        return self._ask("group", (0, {}))

    def commit(self, _group, _ends, note, _until):
        assert note.startswith(MARK)
        self._ask("commit")

    def close(self):
        pass


@pytest.mark.contract("S7", "S8")
def test_control_topics_of_another_cluster_leave_other_questions_to_the_streams_own():
    """Held partitions and progress belong to the cluster of the topics that are read."""
    clusters = Clusters()
    given = options.parse(
        {
            "kafka.bootstrap.servers": "data:9092",
            "commitGroup": "progress",
            "holds": "orders",
            "holds.control": "true",
            "holds.group": "g",
            "holds.statusTopic": "",
            "holds.control.kafka.bootstrap.servers": "control:9092",
        }
    )
    made = Opening(PauseLedger(), clusters, SimpleNamespace).stream("s", given)
    at = offsets.render({ORDERS: 7})
    made.plan({"start": at, "end": at, "latest": at, "ends": "no"})
    made.ended({})
    made.close()
    assert dict(clusters.asked) == {
        "holds": "control:9092",
        **dict.fromkeys(("group", "firsts", "topic_ids", "commit"), "data:9092"),
    }
