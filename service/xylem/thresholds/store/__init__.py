"""Thresholds and events in the database."""
