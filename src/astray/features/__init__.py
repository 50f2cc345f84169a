"""Features: from fixes to what a reward sees: metres, steps, memory, familiarity, popularity, statistics of trips."""
