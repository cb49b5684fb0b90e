"""Jobs: training, tuning and batches that run in processes of their own, queued in the database.

Callers (HTTP routes, the command line) use `jobs` and `data` of this package; `worker` runs what
waits. docs/jobs.md says what runs where.
"""
