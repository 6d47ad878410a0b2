"""Judging a group costs work in proportion to its holds."""

import pytest
from attrs import evolve

from safeconsumer.cli import group_text
from safeconsumer.group.documents import status_document
from safeconsumer.group.facts import Standing
from safeconsumer.group.overview import view_of
from tests.unit.group.test_judging import A, picture, report
from tests.unit.group.test_overviews import hold


class Walked(tuple[Standing, ...]):  # noqa: SLOT001 - it counts
    """Holds that count how often all of them are walked."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def held_often(count, **settings):
    several = (
        evolve(hold(ttl_ms=3_600_000), key=evolve(hold().key, owner=f"owner-{n}"))
        for n in range(count)
    )
    seen = evolve(picture(A, report("a", 0)), standing=Walked(several))
    return evolve(seen, **settings)


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(lambda seen: group_text.status_lines(view_of(seen)), id="text"),
        pytest.param(lambda seen: status_document(view_of(seen)), id="json"),
    ],
)
@pytest.mark.parametrize(
    "clock",
    [
        pytest.param({"now": 200.0}, id="known time"),
        pytest.param({"now": None, "newest": 100.0, "wall": 9e9}, id="own clock"),
    ],
)
def test_holds_are_walked_equally_often_however_many_they_are(show, clock):
    walks = []
    for count in (5, 40):
        seen = held_often(count, **clock)
        show(seen)
        assert isinstance(seen.standing, Walked)
        walks.append(seen.standing.walks)
    few, many = walks
    assert few == many
