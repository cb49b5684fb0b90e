"""Dialect of predict: JSON of instances and options becomes JSON of predictions."""
