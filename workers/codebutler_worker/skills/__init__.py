"""Skills in use: which a repository has, and an agent's way to them."""
