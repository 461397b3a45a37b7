"""Foreign programs: begun behind the walls, talked to by lines or at a terminal, and ended with all they started."""
