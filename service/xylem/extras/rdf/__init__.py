"""Vocabularies in RDF, parsed by rdflib (extra `rdf`)."""
