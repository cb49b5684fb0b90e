"""The registry: aliases are moved and versions deleted here, and in
an object store that others follow.
"""
