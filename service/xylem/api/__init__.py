"""HTTP and the names of JSON fields: the only place that knows them."""
