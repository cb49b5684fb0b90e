"""The database that replicas share: SQLite beside the store, or PostgreSQL."""
