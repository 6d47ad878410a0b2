"""An agreement is void once anything that it was given for has changed."""

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.console.forms import agreement
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import OPERATOR
from safeconsumer.group.picture import Picture
from safeconsumer.group.preview import (
    Consent,
    Objection,
    Preview,
    placing,
    replacing,
    wish_of,
)
from safeconsumer.group.publisher import new_hold
from safeconsumer.group.wire import ControlKey
from tests.unit.group.test_judging import picture as picture_of

TYPED = {"group": "billing", "scopes": "orders", "reason": "x"}
PICTURE = evolve(picture_of(), group="billing", now=1_800_000_000.0)


def standing(offset: int, hold_id: str, scope: str = "orders") -> Standing:
    hold = evolve(new_hold("another reason", None), hold_id=hold_id)
    return Standing(
        source=OPERATOR,
        key=ControlKey("billing", "alice", scope),
        hold=hold,
        at=PICTURE.now,
        offset=offset,
    )


def previewed(
    *replaced: Standing,
    picture: Picture = PICTURE,
    objections: tuple[Objection, ...] | None = None,
    covers: tuple[TopicPartition, ...] = (),
    waiting: int = 0,
) -> Preview:
    wish = wish_of(
        group="billing",
        owner="alice",
        texts=("orders", "payments"),
        reason="x",
        for_=None,
    )
    one = placing(evolve(picture, standing=replaced), wish, skew=30.0)
    return Preview(
        placing=evolve(one, covers=covers),
        objections=tuple(replacing(one)) if objections is None else objections,
        disobeying=(),
        waiting=waiting,
        retention={},
    )


FUTURE = Objection(Consent.FUTURE, "no group billing here", "Hold it before it exists")
SEEN = previewed(standing(7, "a"), objections=(FUTURE,))


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        pytest.param({**TYPED, "reason": "y"}, SEEN, id="another input"),
        pytest.param(
            TYPED, previewed(standing(7, "a")), id="another kind of objection"
        ),
        pytest.param(
            TYPED,
            evolve(SEEN, objections=(evolve(FUTURE, what="no topic orders here"),)),
            id="another mistake",
        ),
        pytest.param(
            TYPED,
            previewed(standing(7, "b"), objections=(FUTURE,)),
            id="another hold in the place of the replaced one",
        ),
        pytest.param(
            TYPED,
            previewed(standing(8, "a"), objections=(FUTURE,)),
            id="the replaced hold written again",
        ),
        pytest.param(
            TYPED,
            previewed(standing(7, "a", "payments"), objections=(FUTURE,)),
            id="the hold of another scope replaced",
        ),
        pytest.param(
            TYPED,
            previewed(
                standing(7, "a"), standing(9, "c", "payments"), objections=(FUTURE,)
            ),
            id="one more hold replaced",
        ),
        pytest.param(TYPED, previewed(objections=(FUTURE,)), id="nothing replaced"),
    ],
)
def test_a_change_of_what_the_operator_saw_voids_the_agreement(
    typed: dict[str, str], seen: Preview
) -> None:
    """An operator would otherwise replace a hold that was placed after the preview."""
    assert agreement(typed, seen) != agreement(TYPED, SEEN)


def test_an_agreement_outlasts_partitions_and_records_that_come() -> None:
    """An operator agrees to holds, and not to how much waits behind them now."""
    later = previewed(
        standing(7, "a"),
        objections=(FUTURE,),
        covers=(TopicPartition("orders", 0),),
        waiting=5,
    )
    assert agreement(dict(reversed(TYPED.items())), later) == agreement(TYPED, SEEN)
