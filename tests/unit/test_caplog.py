"""The log that a test reads contains only the test's own lines."""

import logging
import threading

import pytest

GO, LOGGED = threading.Event(), threading.Event()


@pytest.fixture
def earlier_thread():
    """Leave a thread running before ``caplog`` starts, as an earlier test may do."""

    def late():
        GO.wait()
        logging.getLogger("kafka").error("of an earlier test")
        LOGGED.set()

    thread = threading.Thread(target=late)
    thread.start()
    yield
    GO.set()
    thread.join()


def test_lines_of_an_earlier_tests_thread_are_not_in_the_log(earlier_thread, caplog):
    del earlier_thread
    GO.set()
    LOGGED.wait()
    logging.getLogger("kafka").error("of this one")
    assert [one.getMessage() for one in caplog.records] == ["of this one"]
