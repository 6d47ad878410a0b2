"""The delivery journal, and the proof or refutation of the promises from it."""
