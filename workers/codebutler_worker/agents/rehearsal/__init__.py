"""The rehearsal agent: scripted, offline, and at work in the repository through the same port as the others."""
