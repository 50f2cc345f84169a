"""The web: the application, its API, the files of the page, and what is pushed to open pages."""
