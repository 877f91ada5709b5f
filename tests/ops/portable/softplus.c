// Sums and gradients, with samples that fill no vector.
#include <softplus.c>
#include "numbers.h"

enum { MODELS = 2, HIDDEN = 70, SAMPLES = 37, LABELS = 3 };

int main(void) {
    static float a[MODELS * HIDDEN * SAMPLES], w[MODELS * HIDDEN * LABELS], sums[MODELS * LABELS * SAMPLES];
    static float grad[LENGTH(sums)], a_grad[LENGTH(a)], w_grad[LENGTH(w)];
    FILL(a, -15, 15);
    FILL(w, -2, 2);
    FILL(grad, -1, 1);
    softplus_sum(a, w, sums, MODELS, HIDDEN, SAMPLES, LABELS, 1);
    softplus_sum_backward(a, w, grad, a_grad, w_grad, MODELS, HIDDEN, SAMPLES, LABELS, 1);
    SHOW(sums);
    SHOW(a_grad);
    SHOW(w_grad);
    return 0;
}
