"""The database that replicas share: what feedback adds up to. SQLite beside the store, or PostgreSQL."""

FILE_NAME = "xylem.db"
"""The SQLite database beside the models of a store."""

EVENT_KEY_BYTES = 16
"""Of the key by which an event is remembered."""
