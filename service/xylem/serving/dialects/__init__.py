"""Families of requests: a folder each, with its bodies, its answers and the way between."""
