"""The other systems: each in a virtual environment of its own, run by a
script of ours in a fresh process.
"""
