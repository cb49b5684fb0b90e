"""Vocabularies of concepts that have names: read, and found in texts by their names."""
