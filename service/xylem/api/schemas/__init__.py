"""The JSON of models, labels, versions and aliases: one class for each body and answer."""
