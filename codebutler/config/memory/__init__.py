"""``memory.md``: what is remembered about a repository, one fact a line."""
