"""One gateway and many hosts: the parent and its workers on different machines, connected by NATS JetStream."""
