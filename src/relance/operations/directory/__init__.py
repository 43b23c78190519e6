"""Tables in directories named after them (V1): the marker beside the directory decides what is visible."""
