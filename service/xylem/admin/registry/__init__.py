"""The registry: moves aliases and deletes versions, here and in an object store."""
