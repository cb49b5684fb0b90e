"""Dialect of Annif: texts become suggestions, and documents to learn become feedback."""
