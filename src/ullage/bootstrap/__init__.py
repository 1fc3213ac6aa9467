"""Construction of servers from settings: the only package that connects all parts."""
