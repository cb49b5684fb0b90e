"""The registry: one place that moves aliases and deletes, and tells who did so, when and why."""
