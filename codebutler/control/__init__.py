"""The control socket: what the operator of this machine may ask of the running supervisor."""
