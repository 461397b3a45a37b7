"""One page that shows how everything fares and what waits for a person. It only shows."""
