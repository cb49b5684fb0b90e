"""What of the database others know by name: its file, and the length of its keys."""

FILE_NAME = "xylem.db"
"""The SQLite database beside the models of a store."""

EVENT_KEY_BYTES = 16
"""Of the key by which an event is remembered."""
