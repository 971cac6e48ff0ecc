"""Traces as people have them, turned into rows."""
