"""What each session deserves: demand, dominant shares, and places that are promised."""
