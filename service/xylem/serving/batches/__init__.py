"""Batches of JSON lines: read in blocks, answered line by line, or written to files."""
