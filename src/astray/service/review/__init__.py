"""Review: flagged trips wait for a person; explanations, verdicts, what they teach, and what is erased."""
