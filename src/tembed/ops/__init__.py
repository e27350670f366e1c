"""C kernels for the CPU, compiled on first use; each has a plain form in torch beside its caller."""
