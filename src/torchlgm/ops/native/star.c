/* Training stars, models of one hidden layer between columns and a class, by stochastic gradients; see star.py.

A slot is a label of a column. The log-odds of the hidden nodes are a bias, and for each column the values of its slot or,
between two knots, of two slots in proportion; where it is missing, those of what its labels sum out to. A class adds its
energies w to these log-odds a, and the log of its belief is the sum of softplus(a + w). With s = sigmoid(a) that is

    log(1 + exp(a + w)) = log(1 + exp(a)) + log((1 - s) + s exp(w)),

whose first term is the same for all classes: the sums are logs of products, without an exponential for each class. The
energies of class 0 are part of the bias, so that its products are 1.

Each member is trained by one thread, row by row, and results do not depend on the number of threads. A member's
parameters lie behind one another: values of slots (slots, hidden), bias (hidden), energies (hidden, classes), unaries of
slots (slots), unaries of classes (classes). Rows of tables that are made of them are padded to whole vectors. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define LANES 16
#define MOST 40.0f /* of an energy: two factors can be multiplied */
#define INLINE static inline __attribute__((always_inline))
#define LN2 0x1.62e42fp-1f

typedef float V __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t I __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef float V8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float V4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t I8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t I4 __attribute__((vector_size(16), aligned(4), may_alias));

typedef struct {
    int64_t members, columns, slots, hidden, classes, threads;
    const int32_t *first;  /* (columns + 1): the slot of label 0 */
    const float *step;     /* (columns): of the values of a number, which add up from knot to knot; 0: a category */
    const int32_t *slot;   /* (rows, columns): -1 where missing */
    const float *share;    /* (rows, columns): of the next slot */
    const int32_t *label;  /* (rows) */
    const float *weight;   /* (rows) */
    float *parameters;     /* (members, size) */
} Star;

typedef struct {
    int64_t steps, batch, first; /* the number of the first step, from 0 */
    const int64_t *index;        /* (steps, members, batch): rows */
    const uint16_t *shown;       /* (steps, members, batch): an entry is seen if its noise is less */
    const uint8_t *noise;        /* (steps, members, batch, columns) */
    const float *rate;           /* (steps) */
    const float *penalty;        /* (members) */
    float *mean, *square;        /* (members, size): of gradients */
    float *loss;                 /* (steps, members) */
    float beta1, beta2, epsilon;
} Course;

typedef struct {
    int64_t width, others; /* hidden nodes, padded; classes but class 0 */
    int64_t factors;       /* that can be multiplied */
    float *values, *odds, *often, *energies, *start, *s, *rest, *logits, *powers, *by;
    float *values_grad, *energies_grad, *start_grad, *odds_grad, *target_grad, *gradient;
    int32_t *at;
    const float *target;
} Work;

int64_t star_size(void) { return sizeof(Star); }
int64_t course_size(void) { return sizeof(Course); }

INLINE V splat(float x) { return (V){} + x; }
INLINE V pick(I mask, V a, V b) { return (V)((mask & (I)a) | (~mask & (I)b)); }
INLINE V at(const float *x) { return *(const V *)x; }
INLINE void put(float *x, V v) { *(V *)x = v; }

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

/* log(x) for normal x */
INLINE V logarithm(V x) {
    I n = ((I)x - 0x3f3504f3) >> 23; /* sqrt(1/2): the rest is between that and its double */
    V m = (V)((I)x - (n << 23)), power = (V)(n + 0x4b400000) - 0x1.8p23f;
    V s = (m - 1.0f) / (m + 1.0f), z = s * s;
    V y = z * (2.0f / 9) + 2.0f / 7;
    y = y * z + 2.0f / 5;
    y = y * z + 2.0f / 3;
    y = y * z + 2.0f;
    return power * LN2 + y * s;
}

INLINE V square_root(V x) {
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
    return x;
}

INLINE float sum(V v) {
    V8 a = *(V8 *)&v + *((V8 *)&v + 1);
    V4 b = *(V4 *)&a + *((V4 *)&a + 1);
    return (b[0] + b[1]) + (b[2] + b[3]);
}

INLINE float product(V v) {
    V8 a = *(V8 *)&v * *((V8 *)&v + 1);
    V4 b = *(V4 *)&a * *((V4 *)&a + 1);
    return (b[0] * b[1]) * (b[2] * b[3]);
}

INLINE int32_t total(I v) {
    I8 a = *(I8 *)&v + *((I8 *)&v + 1);
    I4 b = *(I4 *)&a + *((I4 *)&a + 1);
    return (b[0] + b[1]) + (b[2] + b[3]);
}

/* Moves the power of two of a positive number to an exponent. */
INLINE void split(V *x, I *power) {
    I n = ((I)*x >> 23) - 127;
    *power += n;
    *x = (V)((I)*x - (n << 23));
}

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static int64_t size_of(const Star *star) {
    return star->slots * (star->hidden + 1) + star->hidden + star->hidden * star->classes + star->classes;
}

static Work *work_for(const Star *star) {
    const int64_t width = padded(star->hidden), rows = star->slots + star->columns, others = star->classes - 1;
    const int64_t classes = padded(star->classes);
    const int64_t sizes[] = {rows * width, star->slots * width, padded(star->slots), others * width, width, width,
                             width, classes, classes, 2 * padded(star->columns), rows * width, others * width, width,
                             width, classes, size_of(star)};
    int64_t numbers = 0;
    for (int i = 0; i < 16; i++) numbers += sizes[i] + LANES;
    Work *work = calloc(1, sizeof(Work) + 64);
    float *x = aligned_alloc(64, (numbers * sizeof(float) + 2 * star->columns * sizeof(int32_t) + 127) / 64 * 64);
    if (!work || !x) { free(work); free(x); return NULL; }
    memset(x, 0, numbers * sizeof(float));
    float **parts[] = {&work->values, &work->odds, &work->often, &work->energies, &work->start, &work->s, &work->rest,
                       &work->logits, &work->powers, &work->by, &work->values_grad, &work->energies_grad,
                       &work->start_grad, &work->odds_grad, &work->target_grad, &work->gradient};
    for (int i = 0; i < 16; i++) *parts[i] = x, x += padded(sizes[i]);
    work->at = (int32_t *)x;
    work->width = width, work->others = others;
    return work;
}

static void done_with(Work *work) {
    if (work) free(work->values);
    free(work);
}

static void add_up(float *x, const float *from, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] += from[i] * scale;
}

/* Tables of a member: values by slot and of what is missing, and factors by class. */
static void prepare(const Star *star, Work *work, const float *p) {
    const int64_t hidden = star->hidden, width = work->width, classes = star->classes;
    const float *bias = p + star->slots * hidden, *out = bias + hidden, *unary = out + hidden * classes;
    float most = 1.0f;
    work->target = unary + star->slots;
    for (int64_t c = 0; c < star->columns; c++) {
        const int64_t from = star->first[c], to = star->first[c + 1];
        float highest = unary[from], all = 0;
        for (int64_t k = from; k < to; k++) highest = unary[k] > highest ? unary[k] : highest;
        for (int64_t k = from; k < to; k++) all += work->often[k] = expf(unary[k] - highest);
        for (int64_t k = from; k < to; k++) {
            float *v = work->values + k * width;
            work->often[k] /= all;
            if (!star->step[c]) memcpy(v, p + k * hidden, hidden * sizeof(float));
            else if (k == from) memset(v, 0, hidden * sizeof(float));
            else memcpy(v, v - width, hidden * sizeof(float)), add_up(v, p + k * hidden, star->step[c], hidden);
        }
        for (int64_t h = 0; h < width; h += LANES) {
            V top = at(work->values + from * width + h), mass = {};
            for (int64_t k = from + 1; k < to; k++) {
                V v = at(work->values + k * width + h);
                top = pick((I)(v > top), v, top);
            }
            for (int64_t k = from; k < to; k++) {
                V e = exp_minus_abs(at(work->values + k * width + h) - top) * work->often[k];
                put(work->odds + k * width + h, e);
                mass += e;
            }
            mass = pick((I)(mass < 1e-30f), splat(1e-30f), mass);
            V inverse = 1.0f / mass;
            for (int64_t k = from; k < to; k++)
                put(work->odds + k * width + h, at(work->odds + k * width + h) * inverse);
            put(work->values + (star->slots + c) * width + h, top + logarithm(mass));
        }
    }
    for (int64_t h = 0; h < hidden; h++) {
        work->start[h] = bias[h] + out[h * classes];
        for (int64_t y = 1; y < classes; y++) {
            float w = out[h * classes + y] - out[h * classes];
            w = w > MOST ? MOST : w < -MOST ? -MOST : w;
            most = fabsf(w) > most ? fabsf(w) : most;
            work->energies[h / LANES * LANES * work->others + (y - 1) * LANES + h % LANES] = expf(w);
        }
    }
    for (int64_t h = hidden; h < width; h++)
        for (int64_t y = 0; y < work->others; y++)
            work->energies[h / LANES * LANES * work->others + y * LANES + h % LANES] = 1.0f;
    work->factors = (int64_t)(80.0f / most);
}

/* The slots of a row with their shares; `seen` entries have less noise than `shown`. */
INLINE int64_t list_entries(const Star *star, Work *work, int64_t row, int shown, const uint8_t *noise) {
    const int32_t *slot = star->slot + row * star->columns;
    const float *share = star->share + row * star->columns;
    int64_t n = 0;
    for (int64_t c = 0; c < star->columns; c++) {
        const int seen = slot[c] >= 0 && noise[c] < shown;
        work->at[n] = seen ? slot[c] : star->slots + c;
        work->by[n++] = seen ? 1.0f - share[c] : 1.0f;
        work->at[n] = slot[c] + 1;
        work->by[n] = share[c];
        n += seen && share[c] > 0;
    }
    return n;
}

INLINE void gather(Work *work, int64_t entries, int64_t h, const int vectors) {
    V a[4];
    for (int i = 0; i < vectors; i++) a[i] = at(work->start + h + i * LANES);
    for (int64_t e = 0; e < entries; e++) {
        const float *v = work->values + work->at[e] * work->width + h;
        for (int i = 0; i < vectors; i++) a[i] += at(v + i * LANES) * work->by[e];
    }
    for (int i = 0; i < vectors; i++) {
        V e = exp_minus_abs(a[i]), more = 1.0f / (e + 1.0f), less = e * more;
        I positive = (I)(a[i] > 0.0f);
        put(work->s + h + i * LANES, pick(positive, more, less));
        put(work->rest + h + i * LANES, pick(positive, less, more));
    }
}

/* Logs of products over the hidden nodes, of a few classes from y on. */
INLINE void multiply(Work *work, int64_t y, const int classes, float *products, float *powers) {
    V p[4];
    I power[4];
    for (int j = 0; j < classes; j++) p[j] = splat(1.0f), power[j] = (I){};
    int64_t left = work->factors;
    for (int64_t h = 0; h < work->width; h += LANES) {
        const float *w = work->energies + h * work->others + y * LANES;
        V s = at(work->s + h), rest = at(work->rest + h);
        for (int j = 0; j < classes; j++) p[j] *= s * at(w + j * LANES) + rest;
        if (--left == 0) {
            left = work->factors;
            for (int j = 0; j < classes; j++) split(&p[j], &power[j]);
        }
    }
    for (int j = 0; j < classes; j++) {
        split(&p[j], &power[j]);
        products[y + 1 + j] = product(p[j]);
        powers[y + 1 + j] = (float)total(power[j]);
    }
}

/* log of the belief in each class, into `logits` */
static void believe(const Star *star, Work *work, int64_t entries) {
    const int64_t width = work->width, others = work->others, classes = star->classes;
    float *logits = work->logits, *powers = work->powers;
    int64_t h = 0, y = 0;
    for (; h + 4 * LANES <= width; h += 4 * LANES) gather(work, entries, h, 4);
    for (; h < width; h += LANES) gather(work, entries, h, 1);
    for (int64_t i = 0; i < padded(classes); i++) logits[i] = 1.0f, powers[i] = 0;
    for (; y + 4 <= others; y += 4) multiply(work, y, 4, logits, powers);
    for (; y < others; y++) multiply(work, y, 1, logits, powers);
    for (int64_t i = 0; i < classes; i += LANES) put(logits + i, logarithm(at(logits + i)) + at(powers + i) * LN2);
    float highest = -INFINITY, all = 0;
    for (int64_t i = 0; i < classes; i++) {
        logits[i] += work->target[i];
        highest = logits[i] > highest ? logits[i] : highest;
    }
    for (int64_t i = 0; i < classes; i += LANES) {
        V e = exp_minus_abs(at(logits + i) - highest);
        if (classes - i >= LANES) all += sum(e);
        else for (int64_t j = 0; j < classes - i; j++) all += e[j];
    }
    highest += logf(all);
    for (int64_t i = 0; i < classes; i++) logits[i] -= highest;
}

INLINE V back(Work *work, int64_t h, V s, V rest, const float *grad, int64_t y, const int classes) {
    const float *w = work->energies + h * work->others + y * LANES;
    float *to = work->energies_grad + h * work->others + y * LANES;
    V u[2], odds = {};
    if (classes == 2) {
        V a = s * at(w) + rest, b = s * at(w + LANES) + rest, inverse = 1.0f / (a * b);
        u[0] = b * inverse * grad[y + 1], u[1] = a * inverse * grad[y + 2];
    } else
        u[0] = grad[y + 1] / (s * at(w) + rest);
    for (int j = 0; j < classes; j++) {
        V part = s * at(w + j * LANES) * u[j];
        odds += part;
        put(to + j * LANES, at(to + j * LANES) + part);
    }
    return odds;
}

/* Adds the gradient of a row, given that of the logits, to that of the tables. */
static void add_gradient(const Star *star, Work *work, int64_t entries, const float *grad) {
    const int64_t width = work->width, others = work->others;
    for (int64_t h = 0; h < width; h += LANES) {
        V s = at(work->s + h), rest = at(work->rest + h), odds = s * grad[0];
        int64_t y = 0;
        for (; y + 2 <= others; y += 2) odds += back(work, h, s, rest, grad, y, 2);
        if (y < others) odds += back(work, h, s, rest, grad, y, 1);
        put(work->odds_grad + h, odds);
        put(work->start_grad + h, at(work->start_grad + h) + odds);
    }
    for (int64_t e = 0; e < entries; e++) {
        float *to = work->values_grad + work->at[e] * width;
        const float by = work->by[e];
        for (int64_t h = 0; h < width; h += LANES) put(to + h, at(to + h) + at(work->odds_grad + h) * by);
    }
    for (int64_t y = 0; y < star->classes; y++) work->target_grad[y] += grad[y];
}

/* From the gradient of the tables to that of the parameters. */
static void finish(const Star *star, Work *work, const float *p, float penalty) {
    float *g = work->gradient;
    const int64_t hidden = star->hidden, width = work->width, classes = star->classes;
    float *bias = g + star->slots * hidden, *out = bias + hidden, *unary = out + hidden * classes;
    for (int64_t c = 0; c < star->columns; c++) {
        const int64_t from = star->first[c], to = star->first[c + 1];
        const float *absent = work->values_grad + (star->slots + c) * width;
        for (int64_t k = to - 1; k >= from; k--) {
            float *v = work->values_grad + k * width;
            V told = {};
            for (int64_t h = 0; h < width; h += LANES) {
                V share = at(work->odds + k * width + h), missing = at(absent + h);
                told += missing * (share - work->often[k]);
                V here = at(v + h) + missing * share;
                if (star->step[c] && k + 1 < to) here += at(v + width + h);
                put(v + h, here);
            }
            unary[k] = sum(told);
            const float step = star->step[c] ? (k == from ? 0.0f : star->step[c]) : 1.0f;
            for (int64_t h = 0; h < hidden; h++) g[k * hidden + h] = v[h] * step + penalty * p[k * hidden + h];
        }
    }
    for (int64_t h = 0; h < hidden; h++) {
        float first = work->start_grad[h];
        bias[h] = first;
        for (int64_t y = 1; y < classes; y++) {
            const float part = work->energies_grad[h / LANES * LANES * work->others + (y - 1) * LANES + h % LANES];
            out[h * classes + y] = part;
            first -= part;
        }
        out[h * classes] = first;
    }
    for (int64_t i = 0; i < hidden * classes; i++) out[i] += penalty * p[star->slots * hidden + hidden + i];
    memcpy(unary + star->slots, work->target_grad, classes * sizeof(float));
}

static void adam(const Course *course, int64_t step, int64_t n, float *p, const float *g, float *mean, float *square) {
    const double time = (double)(course->first + step + 1);
    const float b1 = course->beta1, b2 = course->beta2;
    const float rate = (float)(course->rate[step] / (1 - pow(b1, time)));
    const float spread = (float)(1 / sqrt(1 - pow(b2, time)));
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V grad = at(g + i), m = at(mean + i) * b1 + grad * (1 - b1), v = at(square + i) * b2 + grad * grad * (1 - b2);
        put(mean + i, m);
        put(square + i, v);
        put(p + i, at(p + i) - m * rate / (square_root(v) * spread + course->epsilon));
    }
    for (; i < n; i++) {
        mean[i] = mean[i] * b1 + g[i] * (1 - b1);
        square[i] = square[i] * b2 + g[i] * g[i] * (1 - b2);
        p[i] -= mean[i] * rate / (sqrtf(square[i]) * spread + course->epsilon);
    }
}

/* The mean loss of a batch; its gradient is left in `work`. */
static float gradient(const Star *star, const Course *course, Work *work, int64_t m, int64_t step, const float *p) {
    const int64_t width = work->width, rows = star->slots + star->columns, batch = course->batch;
    const int64_t first = (step * star->members + m) * batch;
    double loss = 0;
    prepare(star, work, p);
    memset(work->values_grad, 0, rows * width * sizeof(float));
    memset(work->energies_grad, 0, work->others * width * sizeof(float));
    memset(work->start_grad, 0, width * sizeof(float));
    memset(work->target_grad, 0, star->classes * sizeof(float));
    for (int64_t b = 0; b < batch; b++) {
        const int64_t row = course->index[first + b];
        const int64_t entries =
            list_entries(star, work, row, course->shown[first + b], course->noise + (first + b) * star->columns);
        const float weight = star->weight[row] / batch;
        believe(star, work, entries);
        loss -= (double)(weight * work->logits[star->label[row]]);
        for (int64_t y = 0; y < star->classes; y++) work->logits[y] = weight * expf(work->logits[y]);
        work->logits[star->label[row]] -= weight;
        add_gradient(star, work, entries, work->logits);
    }
    finish(star, work, p, course->penalty[m]);
    return (float)loss;
}

/* Trains all members. Returns 0, or 1 without memory. */
int train(const Star *star, const Course *course) {
    const int64_t size = size_of(star);
    int failed = 0;
#pragma omp parallel for num_threads(star->threads) schedule(dynamic)
    for (int64_t m = 0; m < star->members; m++) {
        Work *work = work_for(star);
        float *p = star->parameters + m * size;
#ifdef __x86_64__
        const unsigned kept = _mm_getcsr();
        _mm_setcsr(kept | 0x8040); /* numbers near 0 count as 0 */
#endif
        for (int64_t step = 0; work && step < course->steps; step++) {
            course->loss[step * star->members + m] = gradient(star, course, work, m, step, p);
            adam(course, step, size, p, work->gradient, course->mean + m * size, course->square + m * size);
        }
#ifdef __x86_64__
        _mm_setcsr(kept);
#endif
        if (!work) failed = 1;
        done_with(work);
    }
    return failed;
}

/* log of the beliefs of each member about the rows of one step, (members, batch, classes). */
int star_log_probs(const Star *star, const Course *course, float *log_probs) {
    const int64_t size = size_of(star), batch = course->batch, classes = star->classes;
    int failed = 0;
#pragma omp parallel for num_threads(star->threads) schedule(dynamic)
    for (int64_t m = 0; m < star->members; m++) {
        Work *work = work_for(star);
        if (work) prepare(star, work, star->parameters + m * size);
        for (int64_t i = m * batch; work && i < (m + 1) * batch; i++) {
            believe(star, work, list_entries(star, work, course->index[i], course->shown[i],
                                             course->noise + i * star->columns));
            memcpy(log_probs + i * classes, work->logits, classes * sizeof(float));
        }
        if (!work) failed = 1;
        done_with(work);
    }
    return failed;
}
