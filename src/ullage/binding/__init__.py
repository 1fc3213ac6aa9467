"""Which application is bound to which card: decisions over a frozen view; nothing here waits, counts time or writes."""
