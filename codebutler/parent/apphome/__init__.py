"""App Home: what needs somebody, across all repositories."""
