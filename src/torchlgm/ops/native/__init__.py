"""The kernels in C, for CPUs, and what calls them."""
