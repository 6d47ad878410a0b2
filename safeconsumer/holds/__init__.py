"""Keeps holds: what is paused, by whom, why, and until when."""
