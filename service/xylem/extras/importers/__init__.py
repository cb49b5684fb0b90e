"""Models and vectorizers of other libraries, read from their own files.

Only the command line asks for this package: the service never reads a foreign file.
"""
