"""Extends kafka-python's parts to keep paused partitions out of fetches and polls."""
