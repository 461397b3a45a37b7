"""What our own agent's model may call, one file each."""
