"""The demo on its broker: its referee believes no client."""

import pytest
from attrs import evolve

from safeconsumer.demo import playing
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.stage import SAFE, STOCK
from safeconsumer.demo.tally import Failure
from safeconsumer.testing import EmbeddedBroker

FLAG = next(one for one in SITUATIONS if one.name == "flag")


# The demo, which is CI's first step, plays each of them on the embedded broker.
@pytest.mark.nightly
def test_a_client_that_leaks_is_found_out_whatever_it_is_called() -> None:
    """A stock one under our name is no better; a client that raises ends its own play."""
    lines: list[str] = []
    impostor = evolve(STOCK, title=SAFE.title, is_ours=True)
    broken = evolve(SAFE, make=int)
    with_both = evolve(FLAG, clients=(impostor, broken))
    with EmbeddedBroker() as broker:
        leaking, raising = playing.play_all([with_both], broker, lines.append)

    assert leaking.error is None
    assert Failure.LEAKED in leaking.failures
    counts = leaking.counts
    assert counts.produced == counts.while_paused + counts.when_wanted + counts.lost
    assert raising.error is not None
    assert "played again, the first time ended early: TypeError" in "\n".join(lines)
