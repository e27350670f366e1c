"""The paper's experiments (§4.1-4.2): grids of runs, engines that run them, and the report on their results."""
