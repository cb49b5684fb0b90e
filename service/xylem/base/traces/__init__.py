"""Traces: trace contexts, spans, and how spans are sent. If traces are off, none of it runs."""
