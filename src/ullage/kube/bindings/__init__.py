"""Applications bound to cards: where that is kept, and who may have which card."""
