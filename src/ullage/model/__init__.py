"""The values of the domain, as the glossary defines them; standard library only.

Constructors, and functions named `check_`, `parse_` or `read_`, raise `InvalidRequest` for a wrong value. The message
names the field, the value and the fix. Docstrings state other errors, and conditions that are not obvious.
"""
