"""Methods that tune thresholds on a file."""
