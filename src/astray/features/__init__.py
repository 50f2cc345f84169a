"""Turns fixes into the features of a reward: metres, steps, memory, familiarity, popularity, statistics of trips."""
