"""HOW one update is computed: compact label arithmetic and message kernels. Knows tensors, no graph."""
