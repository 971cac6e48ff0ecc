"""Answers that are kept, and models that ask for each of them once."""
