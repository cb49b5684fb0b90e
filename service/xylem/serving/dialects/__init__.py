"""Families of requests: each folder reads the bodies of one family, and writes its answers."""
