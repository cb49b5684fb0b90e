"""Sentence encoders in ONNX, run by onnxruntime (extra `encoder`)."""
