"""The workers' lives: how each is started, judged, restarted, put to sleep and ended."""
