"""The demo behind `make demo`: a small lake on the local disk, its life, and a policy that maintains it."""
