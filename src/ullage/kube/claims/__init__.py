"""Claims of devices, allocated before a scheduler sees their pods."""
