"""An event goes to its repository: the router, and what holds it back or writes it down."""
