"""Grids of runs: a TOML file to recipes, and engines that train them on this machine or on a Ray cluster."""
