"""Programs and the sandbox around them: bubblewrap, docker, seatbelt or none, what is visible inside, and resource
limits. A program is driven line by line or through a terminal, and ends with all its children."""
