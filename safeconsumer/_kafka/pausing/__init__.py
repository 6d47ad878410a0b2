"""Keeps paused partitions out of fetches, polls and joins, in kafka-python's own parts."""
