"""What is remembered of conversations: learned at their end, kept if it is fit to be, told to new sessions."""
