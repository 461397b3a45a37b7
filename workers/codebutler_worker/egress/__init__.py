"""The way out for programs in a namespace without network: a proxy of ours that knows which hosts they may reach, and
which adds the keys that they do not hold."""
