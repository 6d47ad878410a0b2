"""Proves or refutes the promises from delivery journals."""
