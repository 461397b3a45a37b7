"""The sandbox around programs: bubblewrap, docker, seatbelt or none, what is visible inside, and resource limits."""
