"""The application without HTTP: a request becomes rows, and rows become an answer."""
