"""The rehearsal agent: scripted, offline, and working in the repository through the same port as the others."""
