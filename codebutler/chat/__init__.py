"""The chats that people talk to agents in: what the supervisor asks of one, delivery, and an adapter for each."""
