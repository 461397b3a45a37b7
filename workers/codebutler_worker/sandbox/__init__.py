"""The walls around programs: bubblewrap, docker, seatbelt or none, what is seen behind them, and limits."""
