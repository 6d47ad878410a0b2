"""Extends kafka-python's parts so that fetches and polls leave out paused partitions."""
