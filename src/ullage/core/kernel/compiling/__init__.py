"""How functions of the core are compiled, cached and found: `docs/how-to/write-a-compiled-function.md` explains it.

`tiers` decides whether a process runs the compiled functions or the same functions as plain Python. `cache` keeps
compiled code on disk, and `digests` says from which sources. `uncounted` has what the compiler's public interface
lacks: views of an array without reference counts. `steps` calls large functions through one table of addresses.
"""
