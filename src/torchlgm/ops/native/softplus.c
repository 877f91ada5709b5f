/* Sums over hidden nodes of softplus(a + w), and their gradients; see softplus.py, which says it in Python.

a is (models, hidden, samples), w (models, hidden, labels), sums and their gradient are (models, labels, samples). Each
number is summed in a fixed order, so results do not depend on the number of threads. */

#include <stdint.h>
#include <string.h>

#define LANES 16
#define BLOCK 64 /* samples taken at once, so that what is read again stays in the nearest cache */
#define FACTORS 64 /* numbers from 1 to 2 that may be multiplied without overflow */
#define INLINE static inline __attribute__((always_inline))

typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE V splat(float x) { return (V){} + x; }
INLINE V pick(I mask, V a, V b) { return (V)((mask & (I)a) | (~mask & (I)b)); }

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

/* log(x) for x >= 1 */
INLINE V logarithm(V x) {
    I n = ((I)x - 0x3f3504f3) >> 23; /* sqrt(1/2): the rest is between that and its double */
    V m = (V)((I)x - (n << 23)), power = (V)(n + 0x4b400000) - 0x1.8p23f;
    V s = (m - 1.0f) / (m + 1.0f), z = s * s;
    V y = z * (2.0f / 9) + 2.0f / 7;
    y = y * z + 2.0f / 5;
    y = y * z + 2.0f / 3;
    y = y * z + 2.0f;
    return power * 0x1.62e42fp-1f + y * s;
}

INLINE V load(const float *x, int64_t n) {
    V v = {};
    if (n >= LANES) return *(const V *)x;
    memcpy(&v, x, n * sizeof(float));
    return v;
}

INLINE void store(float *x, V v, int64_t n) {
    if (n >= LANES) *(V *)x = v;
    else memcpy(x, &v, n * sizeof(float));
}

void softplus_sum(const float *a, const float *w, float *sums, int64_t models, int64_t hidden, int64_t samples,
                  int64_t labels, int64_t threads) {
    const int64_t blocks = (samples + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t job = 0; job < models * blocks; job++) {
        const int64_t m = job / blocks, first = job % blocks * BLOCK;
        const int64_t last = first + BLOCK < samples ? first + BLOCK : samples;
        for (int64_t c = 0; c < labels; c++)
            for (int64_t b = first; b < last; b += LANES) {
                V sum = {}, product = splat(1.0f);
                for (int64_t h = 0; h < hidden; h++) {
                    V t = load(a + (m * hidden + h) * samples + b, last - b) + w[(m * hidden + h) * labels + c];
                    sum += pick((I)(t > 0.0f), t, splat(0.0f));
                    product *= exp_minus_abs(t) + 1.0f;
                    if (h % FACTORS == FACTORS - 1) sum += logarithm(product), product = splat(1.0f);
                }
                store(sums + (m * labels + c) * samples + b, sum + logarithm(product), last - b);
            }
    }
}

void softplus_sum_backward(const float *a, const float *w, const float *grad, float *a_grad, float *w_grad,
                           int64_t models, int64_t hidden, int64_t samples, int64_t labels, int64_t threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < models * hidden; row++) {
        const float *g = grad + row / hidden * labels * samples, *x = a + row * samples;
        memset(a_grad + row * samples, 0, samples * sizeof(float));
        for (int64_t c = 0; c < labels; c++) {
            const float shift = w[row * labels + c];
            V total = {};
            for (int64_t b = 0; b < samples; b += LANES) {
                V t = load(x + b, samples - b) + shift, e = exp_minus_abs(t);
                V part = pick((I)(t > 0.0f), splat(1.0f), e) / (e + 1.0f) * load(g + c * samples + b, samples - b);
                store(a_grad + row * samples + b, load(a_grad + row * samples + b, samples - b) + part, samples - b);
                total += part;
            }
            float sum = 0;
            for (int i = 0; i < LANES; i++) sum += total[i];
            w_grad[row * labels + c] = sum;
        }
    }
}
