"""Core: fixes, times, zones, trips, trajectories, names, errors and settings, which everything else builds on."""
