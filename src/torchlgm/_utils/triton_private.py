"""What is not part of Triton's public interface and is used all the same; a new release may break it."""

from triton.runtime.interpreter import InterpretedFunction as InterpretedFunction
from triton.runtime.jit import MockTensor as MockTensor
