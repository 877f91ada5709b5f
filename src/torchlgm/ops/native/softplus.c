/* Sums over hidden nodes of softplus(a + w), and their gradients; see softplus.py, which says it in Python.

a is (models, hidden, samples), w (models, hidden, labels), sums and their gradient are (models, labels, samples). Each
number is summed in a fixed order, so results do not depend on the number of threads. */

#include "vectors.h"

#define BLOCK 64 /* samples taken at once, so that what is read again stays in the nearest cache */
#define FACTORS 64 /* numbers from 1 to 2 that may be multiplied without overflow */

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
