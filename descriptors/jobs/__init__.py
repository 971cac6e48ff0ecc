"""Scoring files."""
