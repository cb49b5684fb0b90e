"""The JSON of jobs: requests and answers."""
