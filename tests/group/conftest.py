"""
What tests of group control share.
"""

from tests.kafka.conftest import safe, told

__all__ = ["safe", "told"]
