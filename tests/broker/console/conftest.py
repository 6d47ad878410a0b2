"""
Fixtures that tests of several folders share.
"""

from tests.harness.console.fixtures import served, team

__all__ = ["served", "team"]
