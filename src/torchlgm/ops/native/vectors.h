/* Vectors of 16 floats, of which processors take as many at once as they can, and functions of them. */

#include <stdint.h>
#include <string.h>

#define LANES 16
#define INLINE static inline __attribute__((always_inline))
#define LN2 0x1.62e42fp-1f

typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE V splat(float x) { return (V){} + x; }
INLINE V pick(I mask, V a, V b) { return (V)((mask & (I)a) | (~mask & (I)b)); }
INLINE V at(const float *x) { return *(const V *)x; }
INLINE void put(float *x, V v) { *(V *)x = v; }

/* The first n of them at most; the others are 0, or stay. */
INLINE V load(const float *x, int64_t n) {
    V v = {};
    if (n >= LANES) return at(x);
    memcpy(&v, x, n * sizeof(float));
    return v;
}

INLINE void store(float *x, V v, int64_t n) {
    if (n >= LANES) put(x, v);
    else memcpy(x, &v, n * sizeof(float));
}

/* exp(-|t|) */
INLINE V exp_minus_abs(V t) {
    V x = (V)((I)t | INT32_MIN);
    x = pick((I)(x < -87.0f), splat(-87.0f), x);
    V near = x * 0x1.71547652b82fep0f + 0x1.8p23f, n = near - 0x1.8p23f;
    V r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    V y = r * (1.0f / 720) + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    return (V)((I)y + ((I)near << 23));
}

/* log(x) for normal x > 0; NaN if it is not finite */
INLINE V logarithm(V x) {
    I n = ((I)x - 0x3f3504f3) >> 23; /* sqrt(1/2): the rest is between that and its double */
    V m = (V)((I)x - (n << 23)), power = (V)(n + 0x4b400000) - 0x1.8p23f;
    V s = (m - 1.0f) / (m + 1.0f), z = s * s;
    V y = z * (2.0f / 9) + 2.0f / 7;
    y = y * z + 2.0f / 5;
    y = y * z + 2.0f / 3;
    y = y * z + 2.0f;
    return power * LN2 + (y * s + (x - x));
}
