"""The server: its parts joined to an application, and the processes that serve it."""
