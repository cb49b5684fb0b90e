"""Steps on the nodes of a Ray cluster (extra `ray`)."""
