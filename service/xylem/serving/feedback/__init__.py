"""Feedback: events of a request are checked, counted, and stored."""
