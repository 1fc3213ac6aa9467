"""Values: what the words of the glossary mean; standard library only."""
