"""Reviews flagged trips: explains them, takes verdicts, teaches and refreshes the model, and erases data."""
