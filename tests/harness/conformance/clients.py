"""The clients that are compared, each with one way of sharing partitions in a group."""

from attrs import frozen

OURS = frozenset({"safeconsumer", "safeconsumer, strict"})
"""The families of which every case either passes or differs by choice."""


@frozen(kw_only=True)
class Client:
    name: str  # what ``--clients`` calls it
    title: str  # the head of its column
    family: str  # whose documented choices are its own
    adapter: str  # the class that drives it, as ``module:Class``
    protocol: str  # an assignor's name, or "consumer" for KIP-848
    arguments: tuple[str, ...] = ()  # what the adapter is made with
    # what pip installs for it, None for the environment of the suite
    needs: str | None = None


STRICT = "tests.broker.conformance.adapters.strict:Strict"
LIKE_KAFKA_PYTHON = "safeconsumer.testing.cases.adapter:Adapter"
_KAFKA_PYTHON_2 = "kafka-python==2.3.3"
_CONFLUENT = "confluent-kafka==2.16.1"
_AIOKAFKA = "aiokafka==0.14.0"

CLIENTS = {
    one.name: one
    for one in (
        Client(
            name="safe",
            title="safeconsumer",
            family="safeconsumer",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=("safeconsumer:SafeConsumer",),
            protocol="range",
        ),
        Client(
            name="safe-cooperative",
            title="safeconsumer, cooperative-sticky",
            family="safeconsumer",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=("safeconsumer:SafeConsumer",),
            protocol="cooperative-sticky",
        ),
        Client(
            name="strict",
            title="safeconsumer, strict",
            family="safeconsumer, strict",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=(STRICT,),
            protocol="range",
        ),
        Client(
            name="strict-cooperative",
            title="safeconsumer, strict, cooperative-sticky",
            family="safeconsumer, strict",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=(STRICT,),
            protocol="cooperative-sticky",
        ),
        Client(
            name="stock",
            title="kafka-python 3.0",
            family="kafka-python",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=("kafka:KafkaConsumer",),
            protocol="range",
        ),
        Client(
            name="stock-cooperative",
            title="kafka-python 3.0, cooperative-sticky",
            family="kafka-python",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=("kafka:KafkaConsumer",),
            protocol="cooperative-sticky",
        ),
        Client(
            name="stock-2",
            title="kafka-python 2.3",
            family="kafka-python",
            adapter=LIKE_KAFKA_PYTHON,
            arguments=("kafka:KafkaConsumer",),
            protocol="range",
            needs=_KAFKA_PYTHON_2,
        ),
        Client(
            name="aiokafka",
            title="aiokafka",
            family="aiokafka",
            adapter="tests.broker.conformance.adapters.aio:Adapter",
            protocol="range",
            needs=_AIOKAFKA,
        ),
        Client(
            name="confluent",
            title="confluent-kafka",
            family="librdkafka",
            adapter="tests.broker.conformance.adapters.confluent:Adapter",
            protocol="range",
            needs=_CONFLUENT,
        ),
        Client(
            name="confluent-cooperative",
            title="confluent-kafka, cooperative-sticky",
            family="librdkafka",
            adapter="tests.broker.conformance.adapters.confluent:Adapter",
            protocol="cooperative-sticky",
            needs=_CONFLUENT,
        ),
        Client(
            name="confluent-848",
            title="confluent-kafka, KIP-848",
            family="librdkafka",
            adapter="tests.broker.conformance.adapters.confluent:Adapter",
            protocol="consumer",
            needs=_CONFLUENT,
        ),
    )
}

IN_CI = ("safe", "stock")
"""What the test suite runs; all others need environments of their own."""
