"""The JSON of the resources: a file for the routes of each, a class for each body and answer."""
