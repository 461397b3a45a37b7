"""An accepted event goes to its repository, by the dispatcher's steps."""
