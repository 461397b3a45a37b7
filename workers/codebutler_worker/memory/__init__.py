"""What is remembered of conversations: learned at their end, kept when it is fit to be, told to new sessions."""
