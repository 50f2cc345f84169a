"""Scores groups of fixes, and writes them and their consequences to the store, each group in one transaction."""
