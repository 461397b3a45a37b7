"""Direct messages: which repository each conversation is about, and what is answered without one."""
