"""Is the block at work? Its share of what it writes, and what the network loses without it."""
