"""The proof or refutation of the promises, from delivery journals."""
