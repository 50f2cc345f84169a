"""Scoring: a group of fixes becomes rows of the store, with all that follows from them, in one transaction."""
