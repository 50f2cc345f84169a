"""Decides whether an alert is sent, writes its words, and delivers it through outlets."""
