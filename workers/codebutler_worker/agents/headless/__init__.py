"""A program that is asked once and answers on its standard output."""
