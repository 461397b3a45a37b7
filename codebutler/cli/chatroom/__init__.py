"""`codebutler chat`: what it shows and what it makes of what is typed, apart from the terminal and the socket."""
