"""Thresholds in memory, which answers use, and which learn from feedback."""
