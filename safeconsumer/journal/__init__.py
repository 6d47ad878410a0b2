"""Writes delivery journals, which record one process's actions for the audit."""
