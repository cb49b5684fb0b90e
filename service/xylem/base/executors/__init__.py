"""Executors of a training's steps: threads of this process, or the nodes of a cluster."""
