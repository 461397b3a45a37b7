"""What agents ask of people, as rows and as cards, and who decided."""
