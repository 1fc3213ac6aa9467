"""HAMi's annotations and resources: requests of pods, cards of its agents, and its output on pods; all pure."""
