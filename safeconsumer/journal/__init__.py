"""Writes delivery journals: the actions of one process, for ``safeconsumer audit``."""
