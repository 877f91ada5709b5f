// Numbers to compute with, the same on every processor, and answers as lines of text.
#include <stdint.h>
#include <stdio.h>

static uint32_t state = 1;

// From 0 to 1.
static double uniform(void) {
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 24);
}

#define LENGTH(x) ((int64_t)(sizeof(x) / sizeof(*(x))))
#define FILL(x, from, to) \
    for (int64_t i_ = 0; i_ < LENGTH(x); i_++) (x)[i_] = (from) + ((to) - (from)) * uniform()
#define SHOW(x) \
    for (int64_t i_ = 0; i_ < LENGTH(x); i_++) printf("%.17g\n", (double)(x)[i_])
