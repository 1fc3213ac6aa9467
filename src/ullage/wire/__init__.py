"""Schemas of messages and files that other programs read or write, and their conversion.

A reader raises `InvalidRequest` for what it cannot read, or `InvalidAnnotation` for an annotation of a pod. The message
names the path or the key, the value and the fix. Docstrings state other errors, and conditions that are not obvious.
"""
