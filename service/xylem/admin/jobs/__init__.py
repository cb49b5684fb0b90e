"""Jobs: training, tuning and batches, each in a process of its own, queued in the database.

Callers (HTTP routes, the command line) use the modules `jobs` and `data` of this package; `worker`
runs the jobs that wait. docs/jobs.md describes which process does what.
"""
