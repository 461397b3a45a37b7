"""What the supervisor serves on loopback."""
