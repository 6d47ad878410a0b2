"""Keeps holds: what is paused, by whom, why, and until when."""

from safeconsumer.holds.scope import ALL, Everything, Partition, Pattern, Topic

__all__ = ["ALL", "Everything", "Partition", "Pattern", "Topic"]
