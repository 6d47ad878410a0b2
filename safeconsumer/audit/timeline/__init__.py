"""Draws a picture of journals: reads them, lays the picture out, and draws it."""
