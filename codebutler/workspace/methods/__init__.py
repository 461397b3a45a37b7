"""The methods of the Web API, one file for each family."""
