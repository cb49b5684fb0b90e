"""Versions and aliases in an object store: pushed by who trains, followed by who serves."""
