"""What the command line and the service do with files: train, evaluate, tune."""
