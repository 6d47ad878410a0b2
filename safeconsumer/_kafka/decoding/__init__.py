"""Receives answers and reads record batches faster than kafka-python, with equal results."""
