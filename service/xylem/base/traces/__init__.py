"""Traces: who continues one, what a span is, and how spans are sent. Off, nothing of it runs."""
