"""What every node and card has left, who holds it, and what changes it; whatever is tried is taken back."""
