"""Network access for programs in a namespace without network: our proxy knows which hosts they may reach, and adds the
keys that they do not hold."""
