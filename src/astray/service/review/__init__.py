"""Review: flagged trips wait for a person; explanations, verdicts, what they teach, refreshing and erasure."""
