"""A backlog is no loss while it gets less."""

from collections.abc import Iterator

from attrs import define

from tests.system.soak.topics import until_nothing_moves


@define
class Clock:
    """A clock that only sleeping moves."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def _waited(seen: Iterator[dict[str, int]]) -> tuple[dict[str, int], float]:
    clock = Clock()
    return until_nothing_moves(lambda: next(seen), 10, clock), clock.now


def test_nothing_is_left() -> None:
    """Then nothing is waited for."""
    assert _waited(iter([{}])) == ({}, 0)


def test_it_gets_less_slowly() -> None:
    """One record in nine seconds, three records."""
    looks = [{"soak-orders:0": left} for left in (3, 2, 1) for _ in range(9)]
    assert _waited(iter([*looks, {}])) == ({}, 27)


def test_nothing_moves() -> None:
    """Ten seconds after the last step."""
    stuck = {"soak-orders:0": 1}
    looks = [{"soak-orders:0": 2}] * 5 + [stuck] * 20
    assert _waited(iter(looks)) == (stuck, 15)


def test_nobody_can_say() -> None:
    """That is no progress, and what was seen before counts."""
    unknown = {"?": 0}
    assert _waited(iter([{"soak-orders:0": 2}] + [unknown] * 20)) == (unknown, 10)
