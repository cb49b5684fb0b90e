"""The JSON of jobs: what a request for one may hold, and what is told of it."""
