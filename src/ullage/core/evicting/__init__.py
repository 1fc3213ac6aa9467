"""Who gives way: to a request, a gang, a session, or so that wide requests fit."""
