"""Thresholds that are served, and learn from feedback."""
