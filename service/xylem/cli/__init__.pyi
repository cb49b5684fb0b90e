"""The names that other packages may import from this one, and the module of each."""
