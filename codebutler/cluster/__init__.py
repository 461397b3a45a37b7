"""One gateway and many hosts: the seam between the parent and its workers, over NATS JetStream."""
