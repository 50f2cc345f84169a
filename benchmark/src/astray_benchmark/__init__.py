"""The benchmark: its protocols, data, metrics, tables and figures."""
