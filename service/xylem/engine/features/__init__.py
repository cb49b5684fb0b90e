"""Instances to sparse rows: text (tf-idf or hashing), named features, raw ids and values."""
