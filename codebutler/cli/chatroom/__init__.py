"""`codebutler chat`: what it shows, and what typed text means, apart from the terminal and the socket."""
