"""How the kinds of jobs plan a table, what their tasks do, and their commits."""
