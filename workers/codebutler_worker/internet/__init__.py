"""What the built-in agent may get from the internet: pages and search results, from public addresses only."""
