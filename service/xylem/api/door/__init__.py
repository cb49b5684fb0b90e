"""The parts that each connection and request pass: protocol, request scope, admission, metrics."""
