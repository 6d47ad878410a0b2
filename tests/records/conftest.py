"""
Consumers that reach no broker, as the adapter's tests have them.
"""

from tests.kafka.conftest import safe, told

__all__ = ["safe", "told"]
