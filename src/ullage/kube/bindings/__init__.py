"""Applications bound to cards: where bindings are stored, and which application may use which card."""
