"""Networks from elsewhere in the laboratory: where they come from, their weights, and training on frozen features."""
