"""A console without a broker: what it knows is given, and what it writes is kept."""

from collections.abc import Callable

from attrs import define, evolve, field

from safeconsumer.group.publisher import Acknowledged, Change
from safeconsumer.group.settings import Control
from tests.harness.console.harness import console_of
from tests.harness.console.synthetic import Still, alone, picture, standing

FREE, HELD, LOUD = "group-004", "group-005", "group-050"


@define
class Writer:
    """Stands in for the connection that writes: the topic has what it was told."""

    still: Still
    settings: Control = field(factory=Control)
    written: list[Change] = field(factory=list)
    before: Callable[[], object] = lambda: None  # called before it says what stands

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def check(self): ...

    def close(self): ...

    def topics(self):
        return ()

    def retention(self, names):
        return dict.fromkeys(names)

    def standing(self, group):
        self.before()
        ends = {self.settings.operator_topic: 10}
        return self.still.known.pictures[group].standing, ends

    def topic_of(self, _):
        return self.settings.operator_topic

    def write(self, _, todo):
        self.written += todo
        return tuple(Acknowledged(one, 20, None, None) for one in todo)


def writing(still, **changed):
    writer = Writer(still)
    return console_of(still, lambda: writer, **changed), writer


def groups():
    return alone(
        picture(4, is_held=False),
        picture(5, is_held=True),
        picture(50, is_held=True, is_obeyed=False),
    )


def held_by(*owners):
    """Make a group that each owner holds a partition of."""
    holds = []
    for number, owner in enumerate(owners):
        one = standing(HELD, f"topic-005:{number}")
        holds.append(evolve(one, key=evolve(one.key, owner=owner), offset=number))
    return alone(evolve(picture(5, is_held=True), standing=tuple(holds)))
