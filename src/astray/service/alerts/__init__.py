"""Alerts: of which one somebody is told, in which words, and how the message gets there."""
