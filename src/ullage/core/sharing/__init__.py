"""What each session is entitled to: demand, dominant shares, and promised places."""
