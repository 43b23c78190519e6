"""Measurements against the native directory namespace: run them with `python -m benchmarks`.

Each topic is a module that offers `BENCHMARKS`; `__main__` lists the modules. They are measurements,
not tests: a missed target is printed, and nothing fails.
"""
