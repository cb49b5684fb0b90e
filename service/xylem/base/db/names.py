"""Names of the database that other parts use: its file, and the length of its keys."""

FILE_NAME = "xylem.db"  # the SQLite database beside the models of a store

# The bytes of the key by which an event is stored.
EVENT_KEY_BYTES = 16
