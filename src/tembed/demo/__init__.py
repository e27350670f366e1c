"""A few minutes that show the whole way: a world with known parts, two networks, and what their patches say."""
