"""Alerts: whether the service sends one, in which words, and through which outlets."""
