// Runs the sums of softplus on random numbers and compares them with those of the mathematical library.
#include "softplus.c"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MODELS = 2, HIDDEN = 7, SAMPLES = 37, LABELS = 3 };

int main(void) {
    static float a[MODELS * HIDDEN * SAMPLES], w[MODELS * HIDDEN * LABELS], sums[MODELS * LABELS * SAMPLES];
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) a[i] = 30.0f * ((float)rand() / (float)RAND_MAX - 0.5f);
    for (size_t i = 0; i < sizeof w / sizeof *w; i++) w[i] = 4.0f * ((float)rand() / (float)RAND_MAX - 0.5f);
    softplus_sum(a, w, sums, MODELS, HIDDEN, SAMPLES, LABELS, 1);
    double worst = 0;
    for (int m = 0; m < MODELS; m++)
        for (int c = 0; c < LABELS; c++)
            for (int b = 0; b < SAMPLES; b++) {
                double sum = 0;
                for (int h = 0; h < HIDDEN; h++) {
                    double t = a[(m * HIDDEN + h) * SAMPLES + b] + w[(m * HIDDEN + h) * LABELS + c];
                    sum += t > 0 ? t + log1p(exp(-t)) : log1p(exp(t));
                }
                worst = fmax(worst, fabs(sums[(m * LABELS + c) * SAMPLES + b] - sum) / (1 + sum));
            }
    printf("%g\n", worst);
    return !(worst < 1e-5);
}
