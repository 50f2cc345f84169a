"""Turns rewards into normality, and normality into decisions, on a scale for each agent."""
