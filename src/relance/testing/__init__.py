"""For tests of code that uses Relance: the storage contract, faults on purpose, a clock moved by hand."""
