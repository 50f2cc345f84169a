"""Scoring: from rewards to normality, from normality to decisions, each agent on its own scale."""
