"""The benchmark: protocols, the data they draw from, metrics, tables and figures."""
