"""Featurizers make sparse rows of instances: texts, named features, or raw ids and values."""
