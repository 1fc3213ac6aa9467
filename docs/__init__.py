"""The documentation; `tables` keeps its reference tables equal to the code."""
