"""Discovery of the hardware of this machine."""
