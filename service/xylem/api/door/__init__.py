"""What a connection and every request pass: protocol, request scope, limits, admission, metrics."""
