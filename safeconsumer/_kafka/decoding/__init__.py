"""Receives responses and decodes batches faster than kafka-python, with equal results."""
