"""Receives responses and reads batches faster than kafka-python, with equal results."""
