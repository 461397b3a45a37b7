"""Files in and out, and voice and pictures by a service."""
