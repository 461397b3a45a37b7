"""What the parent and a worker say to each other: messages, frames, the pipe."""
