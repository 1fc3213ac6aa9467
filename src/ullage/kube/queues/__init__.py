"""Pods that wait behind a scheduling gate until their queue admits them."""
