"""The Open Inference Protocol over gRPC: calls become requests of the app that answers HTTP."""
