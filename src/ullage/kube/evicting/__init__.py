"""Which pods of the cluster must go: for pods of higher priority, and where cards are gone."""
