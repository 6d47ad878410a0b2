"""Keeps a consumer's holds: the scope, owner, reason and expiry of each pause."""

from safeconsumer.holds.scope import ALL, Everything, Partition, Pattern, Topic

__all__ = ["ALL", "Everything", "Partition", "Pattern", "Topic"]
