"""The edge between Ullage and the Kubernetes API: objects, calls, mirrors of what the server holds, and who leads.

Nothing here decides about placement.
"""
