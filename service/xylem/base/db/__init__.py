"""The database that replicas share: what feedback adds up to.
SQLite beside the store, or PostgreSQL.
"""
