"""HAMi's words: what its pods ask, what its agents report of cards, and what it writes on pods; all pure."""
