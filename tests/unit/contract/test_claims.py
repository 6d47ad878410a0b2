"""What pages say about other clients is on one list, and each claim has a proof."""

import pytest

from tests.unit.contract.claims import misfits, unproved


@pytest.mark.xfail(strict=True, reason="README says that every pause is forgotten")
def test_each_sentence_about_another_client_is_on_the_list() -> None:
    """And the list has none that is not on its page any more."""
    assert list(misfits()) == []


@pytest.mark.xfail(strict=True, reason="pages quote the Java client without a link")
def test_each_claim_about_another_client_has_a_proof() -> None:
    """A test that plays the client, a case, or the client's own page."""
    assert list(unproved()) == []
