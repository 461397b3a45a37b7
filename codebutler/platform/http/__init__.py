"""An HTTP server on this machine: who may ask, how much, how long."""
