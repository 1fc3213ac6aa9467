"""Where requests go, one by one or together, beside what is kept for others."""
