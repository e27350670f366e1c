"""Checkpoints: the state of a run, the two files that hold it, and the code that reads and writes them."""
