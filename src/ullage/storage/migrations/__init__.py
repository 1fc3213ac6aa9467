"""The history of the schema: revisions are added, never edited."""
