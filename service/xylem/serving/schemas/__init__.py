"""The fields of requests, as pydantic models: each is described here, and nowhere else."""
