"""Hands an owner's pauses to the next owner of the partition (KAFKA-13463)."""
