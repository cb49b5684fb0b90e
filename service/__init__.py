"""Xylem: online prediction for extreme multi-label classification."""
