"""A plugin of pytest: kernels are compiled with the sanitizers for addresses and for undefined behaviour."""

import os

from torchlgm.ops.native import compiler

CHECKS = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fopenmp")
SHARED = ("-shared-libasan",) if os.environ["CC"] == "clang" else ()  # as it is with gcc
compiler.EXTRAS = ((*CHECKS, *SHARED),)
