"""Vendors of accelerators as data: one file per vendor, and the readers and writers that follow them."""
