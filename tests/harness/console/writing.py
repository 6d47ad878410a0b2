"""A console without a broker: what it knows is given, and what it writes is kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from attrs import define, evolve, field

from safeconsumer.group.facts import Standing
from safeconsumer.group.publisher import Acknowledged, Change
from safeconsumer.group.settings import Control
from tests.harness.console.harness import Console, console_of
from tests.harness.console.synthetic import Still, alone, picture, standing

FREE, HELD, LOUD = "group-004", "group-005", "group-050"


@define
class Writer:
    """Stands in for the connection that writes: the topic has what it was told."""

    still: Still
    settings: Control = field(factory=Control)
    written: list[Change] = field(factory=list)
    before: Callable[[], object] = lambda: None  # called before it says what stands

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...

    def topics(self) -> Sequence[str]:
        return ()

    def retention(self, names: Sequence[str]) -> Mapping[str, float | None]:
        return dict.fromkeys(names)

    def standing(self, group: str) -> tuple[tuple[Standing, ...], dict[str, int]]:
        self.before()
        ends = {self.settings.operator_topic: 10}
        return self.still.known.pictures[group].standing, ends

    def topic_of(self, _: str) -> str:
        return self.settings.operator_topic

    def write(self, _: str, todo: Sequence[Change]) -> tuple[Acknowledged, ...]:
        self.written += todo
        return tuple(Acknowledged(one, 20, None, None) for one in todo)


def writing(still: Still, **changed: Any) -> tuple[Console, Writer]:  # noqa: ANN401 - of Setup
    writer = Writer(still)
    return console_of(still, lambda: writer, **changed), writer


def groups() -> Still:
    return alone(
        picture(4, is_held=False),
        picture(5, is_held=True),
        picture(50, is_held=True, is_obeyed=False),
    )


def held_by(*owners: str) -> Still:
    """Make a group that each owner holds a partition of."""
    holds = []
    for number, owner in enumerate(owners):
        one = standing(HELD, f"topic-005:{number}")
        holds.append(evolve(one, key=evolve(one.key, owner=owner), offset=number))
    return alone(evolve(picture(5, is_held=True), standing=tuple(holds)))
