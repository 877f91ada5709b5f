"""A plugin of pytest: kernels are compiled with the sanitizers for addresses and for undefined behaviour."""

from torchlgm.ops.native import compiler

CHECKS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp")
compiler.EXTRAS = (CHECKS,)
