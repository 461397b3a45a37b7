"""What is remembered of conversations: learned when they end, checked before it is stored, and given to new
sessions."""
