"""Models of this process: what the Python face does. `xylem.local` shows it to callers."""
