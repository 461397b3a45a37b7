"""Files in and out, and speech and images through a service."""
