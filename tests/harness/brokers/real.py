"""What the kinds of real brokers have in common that the tests start themselves."""

from safeconsumer.testing import ExistingCluster
from tests.harness.brokers.settings import GROUP_CONFIG


class OwnBroker(ExistingCluster):
    """A real broker with the settings for tests, started for this session only."""

    @property
    def group_config(self):
        """The quick timeouts that the settings for tests allow."""
        return GROUP_CONFIG
