"""kafka-python: a paused partition flows once it went to another member and came back."""

from tests.system.upstream.stage import a_topic, stock, until


def shown() -> str | None:
    with a_topic(50, partitions=4) as broker:
        one = stock(broker, "billing")
        one.subscribe(["orders"])
        until(lambda: len(one.assignment()) == 4, lambda: one.poll(500, max_records=1))
        one.pause(*one.assignment())
        other = stock(broker, "billing")
        other.subscribe(["orders"])

        def both() -> None:
            one.poll(200)
            other.poll(200)

        until(lambda: len(other.assignment()) == 2, both)
        other.close()
        leaked = 0

        def count() -> None:
            nonlocal leaked
            leaked += sum(map(len, one.poll(500).values()))

        until(lambda: len(one.assignment()) == 4, count)
        for _ in range(4):
            count()
        paused = len(one.paused())
        one.close()
    said = f"paused 4 partitions, resumed none: {paused} still paused, {leaked} records"
    return said if leaked else None
