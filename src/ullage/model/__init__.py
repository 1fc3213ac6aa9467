"""The values of the domain, as the glossary defines them; standard library only."""
