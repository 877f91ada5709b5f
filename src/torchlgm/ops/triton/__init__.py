"""The kernels in Triton, for GPUs, and what compiles and calls them."""
