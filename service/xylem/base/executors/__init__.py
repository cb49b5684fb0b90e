"""Who runs the steps of a training: threads of this process, or the nodes of a cluster."""
