"""What agents may use in a day: the rules, and how turns are held to them."""
