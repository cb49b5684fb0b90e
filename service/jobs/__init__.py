"""Jobs: training, tuning and batches that run in processes of their own, queued in the database.

Callers (HTTP routes, the command line) use `service.jobs.jobs` and `service.jobs.data`; `service.jobs.worker`
runs what waits. docs/jobs.md says what runs where.
"""
