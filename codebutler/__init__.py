"""CodeButler: coding agents on your own machine, reached from your chat."""
