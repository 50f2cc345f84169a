"""Serves the API, the files of the page, and the events that open pages receive."""
