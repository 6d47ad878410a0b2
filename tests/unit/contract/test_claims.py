"""What pages say about other clients is on one list, and each claim has a proof."""

from tests.unit.contract.claims import misfits, unproved


def test_each_sentence_about_another_client_is_on_the_list():
    assert list(misfits()) == []


def test_each_claim_about_another_client_has_a_proof():
    assert list(unproved()) == []
