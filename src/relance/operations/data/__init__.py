"""The rows of tables: insert, merge, update, delete, count, query. One module per concern."""
