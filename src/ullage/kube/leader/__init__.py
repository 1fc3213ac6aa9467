"""The term of the leading process: what it must know before it decides, and binds of an unknown outcome."""
