"""Models as bytes on disk: the format, the store and the checks. Knows nothing of the service."""
