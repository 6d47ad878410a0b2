"""What pages say about other clients is on one list, and each claim has a proof."""

from tests.unit.contract.claims import misfits, unproved


def test_each_sentence_about_another_client_is_on_the_list():
    """And the list has none that is not on its page any more."""
    assert list(misfits()) == []


def test_each_claim_about_another_client_has_a_proof():
    """A test that plays the client, a case, or the client's own page."""
    assert list(unproved()) == []
