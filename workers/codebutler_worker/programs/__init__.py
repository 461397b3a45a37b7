"""External programs: started in the sandbox, driven line by line or through a terminal, and ended with all their
children."""
