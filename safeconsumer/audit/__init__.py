"""Checks delivery journals for broken promises."""
