"""Plays situations with kafka-python's consumer and ours: ``safeconsumer demo``."""
