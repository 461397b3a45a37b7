"""The chats in which people talk to agents: the port to one, delivery, and an adapter for each."""
