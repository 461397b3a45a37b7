"""The configuration: schema, layers and provenance, trust, the registry of repositories."""
