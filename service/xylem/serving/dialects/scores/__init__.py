"""Dialect of scores: JSON of instances with labels becomes JSON of their probabilities."""
