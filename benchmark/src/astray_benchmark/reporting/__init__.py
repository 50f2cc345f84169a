"""Makes the tables and figures of a results folder from the recipes in ``recipes.toml``.

``report.py`` writes the tables, ``figures.py`` the figures. ``tabulate.py`` fills in the recipe of a table with the
numbers of ``results.py``; ``irregular_tables.py`` makes the few tables that no recipe can describe.
"""
