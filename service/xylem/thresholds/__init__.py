"""Thresholds that maximise the macro-F-measure: tuned on a file, then moved by feedback."""
