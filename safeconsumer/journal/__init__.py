"""Writes delivery journals: what one process did, for ``safeconsumer audit`` to judge."""
