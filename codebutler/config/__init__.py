"""What is configured: schema, layers and where each value came from, trust, the registry of repositories."""
