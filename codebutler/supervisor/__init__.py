"""The workers' lives: how each is started, monitored, restarted, put to sleep and ended."""
