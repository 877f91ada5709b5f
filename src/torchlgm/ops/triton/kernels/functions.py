"""Exponentials, logarithms and reciprocals, by the hardware's own where they are accurate enough (FAST)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exp(x, FAST: tl.constexpr):
    if FAST:  # what is too small for a normal number is 0, which spares four instructions
        scaled = x * 1.4426950408889634
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [scaled], tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def soft_difference(x, y, FAST: tl.constexpr):
    """softplus(x) - max(x, 0) less the same of y"""
    u = 1.0 + exp(-tl.abs(x), FAST)
    v = 1.0 + exp(-tl.abs(y), FAST)
    if FAST:  # they are in [1, 2], where the hardware's logarithm is good to 2e-7
        log_u = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [u], tl.float32, is_pure=True, pack=1)
        log_v = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [v], tl.float32, is_pure=True, pack=1)
        difference = (log_u - log_v) * 0.6931471805599453
    else:
        difference = tl.log(u) - tl.log(v)
    return difference


@triton.jit
def sigmoid(x, FAST: tl.constexpr):
    y = 1.0 + exp(-x, FAST)
    if FAST:
        p = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [y], tl.float32, is_pure=True, pack=1)
    else:
        p = 1.0 / y
    return p
