"""What an agent of ours may get from the internet: pages and search results, from public addresses only."""
