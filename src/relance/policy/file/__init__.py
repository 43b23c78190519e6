"""The policy file: reading it, and errors that name line and key."""
