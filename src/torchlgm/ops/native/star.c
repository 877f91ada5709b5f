/* Training stars, models of one hidden layer between columns and a class, by stochastic gradients; see star.py.

A slot is a label of a column. The log-odds of the hidden nodes are a bias, and for each column the values of its slot or,
between two knots, of two slots in proportion; where it is missing, what its labels sum out to. The latter is added to
the bias, and values are what a slot says beyond it: what is not seen costs nothing. A class adds its energies w to these log-odds a, and the log of its belief is the sum of softplus(a + w). With s = sigmoid(a) that is

    log(1 + exp(a + w)) = log(1 + exp(a)) + log((1 - s) + s exp(w)),

whose first term is the same for all classes: the sums are logs of products, without an exponential for each class. The
energies of class 0 are part of the bias, so that its products are 1.

Each member is trained by one thread, row by row, and results do not depend on the number of threads. A member's
parameters lie behind one another: values of slots (slots, hidden), bias (hidden), energies (hidden, classes), unaries of
slots (slots), unaries of classes (classes). */

#include "vectors.h"
#include <math.h>
#include <stdlib.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define CHUNK 64 /* rows that are taken at once */
#define TOGETHER 4 /* entries of a row */
#define MOST 40.0f /* of an energy: two factors can be multiplied */
#define UNROLL _Pragma("GCC unroll 4") /* so that arrays of vectors stay in registers */

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

/* Tables are in blocks of LANES hidden nodes: a block of all slots stays in the nearest cache. */
typedef struct {
    int64_t blocks, others;       /* of hidden nodes; classes whose products are not known to be 1 */
    int64_t factors;              /* that can be multiplied */
    float *values, *odds, *often; /* (blocks, slots, LANES), also the next; (slots) */
    float *energies, *start;      /* (blocks, others, LANES), (blocks, LANES) */
    float *s, *rest;              /* (CHUNK, blocks, LANES): sigmoid(a) and what is left to 1 */
    float *logits, *powers;       /* (CHUNK, classes, padded), (classes, padded) */
    float *values_grad, *energies_grad, *start_grad, *target_grad, *gradient;
    float *by;                    /* (CHUNK, most): shares of entries */
    int32_t *at;                  /* (CHUNK, most): where the values of their slots begin in a block */
    int64_t most, entries[CHUNK];
    const float *target;
} Work;

/* What becomes of the class of rows if one more column is known: for each label of it. */
typedef struct {
    int64_t members, rows, columns, labels, hidden, classes, entries, threads;
    const float *odds;             /* (members, rows, hidden): but for what the class says */
    const float *change;           /* (members, columns, labels, hidden): of the odds by a label */
    const float *out, *target;     /* (members, hidden, classes), (members, classes): minus the energies */
    const float *weight;           /* (members, entries): of the members, which sum to 1 */
    const int64_t *row, *column;   /* (entries) */
    float *probs;                  /* (entries, labels, classes) */
} Ask;

int64_t ask_size(void) { return sizeof(Ask); }
int64_t star_size(void) { return sizeof(Star); }
int64_t course_size(void) { return sizeof(Course); }

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

/* Moves the power of two of a positive number to an exponent; what is not finite becomes NaN. */
INLINE void split(V *x, I *power) {
    V zero = *x - *x;
    I n = ((I)*x >> 23) - 127;
    *power += n;
    *x = (V)((I)*x - (n << 23)) + zero;
}

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static int64_t size_of(const Star *star) {
    return star->slots * (star->hidden + 1) + star->hidden + star->hidden * star->classes + star->classes;
}

static Work *work_for(const Star *star) {
    const int64_t blocks = padded(star->hidden) / LANES, width = blocks * LANES, others = star->classes - 1;
    const int64_t slots = star->slots, classes = padded(star->classes);
    const int64_t most = 2 * star->columns + 2 * TOGETHER;
    const int64_t sizes[] = {slots * width, slots * width, slots, others * width, width, CHUNK * width,
                             CHUNK * width, CHUNK * classes, classes, slots * width, others * width, width, classes,
                             size_of(star), CHUNK * most, CHUNK * most};
    const int parts = sizeof(sizes) / sizeof(*sizes);
    int64_t numbers = 0;
    for (int i = 0; i < parts; i++) numbers += padded(sizes[i]);
    Work *work = calloc(1, sizeof(Work));
    float *x = aligned_alloc(LANES * sizeof(float), numbers * sizeof(float));
    if (!work || !x) {
        free(work);
        free(x);
        return NULL;
    }
    memset(x, 0, numbers * sizeof(float));
    float **places[] = {&work->values, &work->odds, &work->often, &work->energies, &work->start, &work->s,
                        &work->rest, &work->logits, &work->powers, &work->values_grad, &work->energies_grad,
                        &work->start_grad, &work->target_grad, &work->gradient, &work->by, (float **)&work->at};
    for (int i = 0; i < parts; i++) *places[i] = x, x += padded(sizes[i]);
    work->blocks = blocks, work->others = others, work->most = most;
    return work;
}

static void done_with(Work *work) {
    if (work) free(work->values);
    free(work);
}

/* What the labels of a column sum out to for a block of hidden nodes, what each says beyond it, and the probabilities of
 * the labels given the hidden nodes while the column is missing. */
static V prepare_column(const Star *star, Work *work, const float *p, int64_t block, int64_t column) {
    const int64_t from = star->first[column], to = star->first[column + 1], hidden = star->hidden;
    const int64_t left = hidden - block * LANES;
    const float step = star->step[column], *free_values = p + block * LANES;
    float *values = work->values + block * star->slots * LANES, *odds = work->odds + block * star->slots * LANES;
    V top = splat(-INFINITY), upto = {}, mass = {};
    for (int64_t k = from; k < to; k++) {
        V v = load(free_values + k * hidden, left);
        if (step != 0) v = upto + v * (k == from ? 0 : step);
        upto = v;
        put(values + k * LANES, v);
        top = pick((I)(v > top), v, top);
    }
    for (int64_t k = from; k < to; k++) {
        V e = exp_minus_abs(at(values + k * LANES) - top) * work->often[k];
        put(odds + k * LANES, e);
        mass += e;
    }
    mass = pick((I)(mass < 1e-30f), splat(1e-30f), mass);
    V inverse = 1.0f / mass, missing = top + logarithm(mass);
    for (int64_t k = from; k < to; k++) {
        put(odds + k * LANES, at(odds + k * LANES) * inverse);
        put(values + k * LANES, at(values + k * LANES) - missing);
    }
    return missing;
}

/* Factors by class: exp of the energies (hidden, classes) beyond those of class 0, of the last classes. */
static void prepare_classes(Work *work, const float *out, int64_t hidden, int64_t classes) {
    float most = 1.0f;
    for (int64_t h = 0; h < work->blocks * LANES; h++)
        for (int64_t y = 0; y < work->others; y++) {
            float w = h < hidden ? out[h * classes + classes - work->others + y] - out[h * classes] : 0;
            w = w > MOST ? MOST : w < -MOST ? -MOST : w;
            most = fabsf(w) > most ? fabsf(w) : most;
            work->energies[(h / LANES * work->others + y) * LANES + h % LANES] = w;
        }
    for (int64_t i = 0; i < work->blocks * work->others * LANES; i += LANES) {
        V w = at(work->energies + i), e = exp_minus_abs(w);
        put(work->energies + i, pick((I)(w > 0.0f), 1.0f / e, e));
    }
    work->factors = (int64_t)(84.0f / (most + LN2));
}

/* Tables of a member: values by slot and of what is missing, and factors by class. */
static void prepare(const Star *star, Work *work, const float *p) {
    const int64_t hidden = star->hidden, classes = star->classes;
    const float *bias = p + star->slots * hidden, *out = bias + hidden, *unary = out + hidden * classes;
    work->target = unary + star->slots;
    for (int64_t c = 0; c < star->columns; c++) {
        const int64_t from = star->first[c], to = star->first[c + 1];
        float highest = unary[from], all = 0;
        for (int64_t k = from; k < to; k++) highest = unary[k] > highest ? unary[k] : highest;
        for (int64_t k = from; k < to; k++) all += work->often[k] = expf(unary[k] - highest);
        for (int64_t k = from; k < to; k++) work->often[k] /= all;
    }
    for (int64_t block = 0; block < work->blocks; block++) {
        V start = load(bias + block * LANES, hidden - block * LANES);
        for (int64_t c = 0; c < star->columns; c++) start += prepare_column(star, work, p, block, c);
        for (int64_t i = 0; i < LANES && block * LANES + i < hidden; i++) start[i] += out[(block * LANES + i) * classes];
        put(work->start + block * LANES, start);
    }
    prepare_classes(work, out, hidden, classes);
}

/* The slots of what is seen of a row, with their shares. */
INLINE void list_entries(const Star *star, Work *work, int64_t i, int64_t row, int shown, const uint8_t *noise) {
    const int32_t *slot = star->slot + row * star->columns;
    const float *share = star->share + row * star->columns;
    int32_t *to = work->at + i * work->most;
    float *by = work->by + i * work->most;
    int64_t n = 0;
    for (int64_t c = 0; c < star->columns; c++) {
        const int seen = (slot[c] >= 0) & (noise[c] < shown);
        to[n] = slot[c] * LANES;
        by[n] = 1.0f - share[c];
        n += seen;
        if (star->step[c] == 0) continue;
        to[n] = (slot[c] + 1) * LANES;
        by[n] = share[c];
        n += seen & (share[c] > 0);
    }
    work->entries[i] = n;
    for (; n % TOGETHER; n++) to[n] = 0, by[n] = 0.0f;
}

/* s and rest of a block. */
INLINE void put_sigmoid(Work *work, int64_t place, V a) {
    V e = exp_minus_abs(a), more = 1.0f / (e + 1.0f), less = e * more;
    I positive = (I)(a > 0.0f);
    put(work->s + place * LANES, pick(positive, more, less));
    put(work->rest + place * LANES, pick(positive, less, more));
}

/* s and rest of some rows. */
static void add_entries(const Star *star, Work *work, int64_t rows) {
    for (int64_t block = 0; block < work->blocks; block++) {
        const float *values = work->values + block * star->slots * LANES;
        const V start = at(work->start + block * LANES);
        for (int64_t i = 0; i < rows; i++) {
            const int32_t *from = work->at + i * work->most;
            const float *by = work->by + i * work->most;
            const int64_t count = work->entries[i];
            V part[TOGETHER] = {start};
            for (int64_t n = 0; n < count; n += TOGETHER)
                UNROLL
                for (int j = 0; j < TOGETHER; j++) part[j] += at(values + from[n + j]) * by[n + j];
            put_sigmoid(work, i * work->blocks + block, (part[0] + part[1]) + (part[2] + part[3]));
        }
    }
}

/* Products over the hidden nodes for a few classes from y on: numbers and powers of two, a step apart. */
INLINE void multiply(const Work *work, const float *s, const float *rest, int64_t y, const int classes, float *products,
                     float *powers, int64_t step) {
    V p[4];
    I power[4];
    UNROLL
    for (int j = 0; j < classes; j++) p[j] = splat(1.0f), power[j] = (I){};
    int64_t left = work->factors;
    for (int64_t block = 0; block < work->blocks; block++) {
        const float *w = work->energies + (block * work->others + y) * LANES;
        V here = at(s + block * LANES), other = at(rest + block * LANES);
        UNROLL
        for (int j = 0; j < classes; j++) p[j] *= here * at(w + j * LANES) + other;
        if (--left == 0) {
            left = work->factors;
            UNROLL
            for (int j = 0; j < classes; j++) split(&p[j], &power[j]);
        }
    }
    UNROLL
    for (int j = 0; j < classes; j++) {
        split(&p[j], &power[j]);
        products[(y + j) * step] = product(p[j]);
        powers[(y + j) * step] = (float)total(power[j]);
    }
}

INLINE void multiply_all(const Work *work, const float *s, const float *rest, float *products, float *powers, int64_t step) {
    int64_t y = 0;
    for (; y + 4 <= work->others; y += 4) multiply(work, s, rest, y, 4, products, powers, step);
    if (work->others - y == 3) multiply(work, s, rest, y, 3, products, powers, step);
    if (work->others - y == 2) multiply(work, s, rest, y, 2, products, powers, step);
    if (work->others - y == 1) multiply(work, s, rest, y, 1, products, powers, step);
}

/* log of the beliefs of row i in each class. */
static void believe(const Star *star, Work *work, int64_t i, float *logits) {
    const float *s = work->s + i * work->blocks * LANES, *rest = work->rest + i * work->blocks * LANES;
    const int64_t classes = star->classes;
    logits[0] = 1.0f;
    work->powers[0] = 0;
    multiply_all(work, s, rest, logits + 1, work->powers + 1, 1);
    float highest = -INFINITY, all = 0;
    for (int64_t c = 0; c < classes; c += LANES)
        put(logits + c, logarithm(at(logits + c)) + at(work->powers + c) * LN2 + load(work->target + c, classes - c));
    for (int64_t c = 0; c < classes; c++) highest = logits[c] > highest ? logits[c] : highest;
    for (int64_t c = 0; c < classes; c += LANES) {
        V e = exp_minus_abs(at(logits + c) - highest);
        if (classes - c >= LANES) all += sum(e);
        else for (int64_t j = 0; j < classes - c; j++) all += e[j];
    }
    highest += logf(all);
    for (int64_t c = 0; c < classes; c += LANES) put(logits + c, at(logits + c) - highest);
}

/* Adds to the gradient of the energies of a block for one or two classes; that of the odds by them. */
INLINE V back(const float *w, float *to, V s, V rest, const float *grad, const int classes) {
    V u[2], odds = {};
    if (classes == 2) {
        V a = s * at(w) + rest, b = s * at(w + LANES) + rest, inverse = 1.0f / (a * b);
        u[0] = b * inverse * grad[0], u[1] = a * inverse * grad[1];
    } else
        u[0] = grad[0] / (s * at(w) + rest);
    UNROLL
    for (int j = 0; j < classes; j++) {
        V part = s * at(w + j * LANES) * u[j];
        odds += part;
        put(to + j * LANES, at(to + j * LANES) + part);
    }
    return odds;
}

/* Adds the gradient of some rows, given that of their logits, to that of the tables. */
static void add_gradient(const Star *star, Work *work, int64_t rows) {
    const int64_t others = work->others, classes = padded(star->classes);
    for (int64_t block = 0; block < work->blocks; block++) {
        const float *w = work->energies + block * others * LANES;
        float *to = work->energies_grad + block * others * LANES, *values = work->values_grad + block * star->slots * LANES;
        V start = {};
        for (int64_t i = 0; i < rows; i++) {
            const float *grad = work->logits + i * classes, *by = work->by + i * work->most;
            const int32_t *slot = work->at + i * work->most;
            const V s = at(work->s + (i * work->blocks + block) * LANES);
            const V rest = at(work->rest + (i * work->blocks + block) * LANES);
            V odds = s * grad[0];
            int64_t y = 0;
            for (; y + 2 <= others; y += 2) odds += back(w + y * LANES, to + y * LANES, s, rest, grad + y + 1, 2);
            if (y < others) odds += back(w + y * LANES, to + y * LANES, s, rest, grad + y + 1, 1);
            start += odds;
            const int64_t count = work->entries[i];
            for (int64_t n = 0; n < count; n++) put(values + slot[n], at(values + slot[n]) + odds * by[n]);
        }
        put(work->start_grad + block * LANES, at(work->start_grad + block * LANES) + start);
    }
}

/* From the gradient of the tables to that of the parameters. */
static void finish(const Star *star, Work *work, const float *p, float penalty) {
    const int64_t hidden = star->hidden, classes = star->classes;
    float *g = work->gradient, *bias = g + star->slots * hidden, *out = bias + hidden, *unary = out + hidden * classes;
    memset(unary, 0, star->slots * sizeof(float));
    for (int64_t block = 0; block < work->blocks; block++) {
        const int64_t left = hidden - block * LANES;
        const float *values = work->values_grad + block * star->slots * LANES;
        const float *odds = work->odds + block * star->slots * LANES;
        const float *energies = work->energies_grad + block * work->others * LANES;
        for (int64_t c = 0; c < star->columns; c++) {
            const float step = star->step[c];
            V missing = at(work->start_grad + block * LANES), upto = {};
            for (int64_t k = star->first[c]; k < star->first[c + 1]; k++) missing -= at(values + k * LANES);
            for (int64_t k = star->first[c + 1] - 1; k >= star->first[c]; k--) {
                const V share = at(odds + k * LANES), here = at(values + k * LANES) + missing * share;
                const int64_t i = k * hidden + block * LANES;
                upto += here;
                unary[k] += sum(missing * (share - work->often[k]));
                V grad = here;
                if (step != 0) grad = upto * (k == star->first[c] ? 0 : step);
                store(g + i, grad + load(p + i, left) * penalty, left);
            }
        }
        for (int64_t h = block * LANES; h < hidden && h < (block + 1) * LANES; h++) {
            float first = bias[h] = work->start_grad[h];
            for (int64_t y = 1; y < classes; y++) {
                const float part = energies[(y - 1) * LANES + h % LANES];
                out[h * classes + y] = part;
                first -= part;
            }
            out[h * classes] = first;
        }
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

/* Beliefs about some rows of a step. */
static void answer(const Star *star, const Course *course, Work *work, int64_t first, int64_t rows) {
    for (int64_t i = 0; i < rows; i++)
        list_entries(star, work, i, course->index[first + i], course->shown[first + i],
                     course->noise + (first + i) * star->columns);
    add_entries(star, work, rows);
    for (int64_t i = 0; i < rows; i++) believe(star, work, i, work->logits + i * padded(star->classes));
}

/* The mean loss of a batch; its gradient is left in `work`. */
static float gradient(const Star *star, const Course *course, Work *work, int64_t m, int64_t step, const float *p) {
    const int64_t batch = course->batch, first = (step * star->members + m) * batch, classes = padded(star->classes);
    double loss = 0;
    prepare(star, work, p);
    memset(work->values_grad, 0, work->blocks * star->slots * LANES * sizeof(float));
    memset(work->energies_grad, 0, work->blocks * work->others * LANES * sizeof(float));
    memset(work->start_grad, 0, work->blocks * LANES * sizeof(float));
    memset(work->target_grad, 0, classes * sizeof(float));
    for (int64_t b = 0; b < batch; b += CHUNK) {
        const int64_t rows = batch - b < CHUNK ? batch - b : CHUNK;
        answer(star, course, work, first + b, rows);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = course->index[first + b + i];
            const float weight = star->weight[row] / batch;
            float *logits = work->logits + i * classes;
            loss -= (double)(weight * logits[star->label[row]]);
            for (int64_t c = 0; c < classes; c += LANES) put(logits + c, exp_minus_abs(at(logits + c)) * weight);
            logits[star->label[row]] -= weight;
            for (int64_t c = 0; c < classes; c += LANES) put(work->target_grad + c, at(work->target_grad + c) + at(logits + c));
        }
        add_gradient(star, work, rows);
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
        for (int64_t b = 0; work && b < batch; b += CHUNK) {
            const int64_t first = m * batch + b, rows = batch - b < CHUNK ? batch - b : CHUNK;
            answer(star, course, work, first, rows);
            for (int64_t i = 0; i < rows; i++)
                memcpy(log_probs + (first + i) * classes, work->logits + i * padded(classes), classes * sizeof(float));
        }
        if (!work) failed = 1;
        done_with(work);
    }
    return failed;
}

/* s and rest of a block, both times a number that is the same for all classes. */
INLINE void put_odds(Work *work, int64_t place, V a) {
    V e = exp_minus_abs(a);
    I positive = (I)(a > 0.0f);
    put(work->s + place * LANES, pick(positive, splat(1.0f), e));
    put(work->rest + place * LANES, pick(positive, e, splat(1.0f)));
}

/* The class of an entry's row given each label of its column, by a member; LANES labels at once. */
static void foresee(const Ask *ask, Work *work, int64_t m, int64_t entry) {
    const int64_t hidden = ask->hidden, classes = ask->classes, labels = ask->labels;
    const float *odds = ask->odds + (m * ask->rows + ask->row[entry]) * hidden, *first = work->start;
    const float *change = ask->change + (m * ask->columns + ask->column[entry]) * labels * hidden;
    const float weight = ask->weight[m * ask->entries + entry];
    float *probs = ask->probs + entry * labels * classes;
    float *logits = work->logits, *powers = logits + classes * LANES; /* (classes, LANES) */
    for (int64_t k = 0; k < labels; k += LANES, probs += LANES * classes) {
        const int64_t count = labels - k < LANES ? labels - k : LANES;
        for (int64_t i = 0; i < count; i++, change += hidden) {
            for (int64_t block = 0; block < work->blocks; block++) {
                const int64_t h = block * LANES, left = hidden - h;
                put_odds(work, block, load(odds + h, left) + load(change + h, left) + at(first + h));
            }
            multiply_all(work, work->s, work->rest, logits + i, powers + i, LANES);
        }
        V highest = splat(-INFINITY), all = {};
        for (int64_t c = 0; c < classes * LANES; c += LANES) {
            V logit = logarithm(at(logits + c)) + at(powers + c) * LN2 + work->target[c / LANES];
            highest = pick((I)(logit > highest), logit, highest);
            put(logits + c, logit);
        }
        for (int64_t c = 0; c < classes * LANES; c += LANES) {
            V e = exp_minus_abs(at(logits + c) - highest);
            all += e;
            put(logits + c, e);
        }
        const V share = weight / all;
        for (int64_t c = 0; c < classes; c++) {
            const V p = at(logits + c * LANES) * share;
            for (int64_t i = 0; i < count; i++) probs[i * classes + c] += p[i];
        }
    }
}

/* Returns 0, or 1 without memory. */
int star_given(const Ask *ask) {
    const int64_t classes = ask->classes, width = padded(ask->hidden);
    const Star star = {.columns = 0, .slots = 0, .hidden = ask->hidden, .classes = classes + 1}; /* none is known */
    int failed = 0;
    memset(ask->probs, 0, ask->entries * ask->labels * classes * sizeof(float));
#pragma omp parallel num_threads(ask->threads)
    {
        Work *work = work_for(&star);
        if (!work) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp barrier
        for (int64_t m = 0; !failed && m < ask->members; m++) {
            const float *out = ask->out + m * ask->hidden * classes;
            for (int64_t h = 0; h < width; h++) work->start[h] = h < ask->hidden ? out[h * classes] : 0;
            prepare_classes(work, out, ask->hidden, classes);
            work->target = ask->target + m * classes;
#pragma omp for schedule(static)
            for (int64_t entry = 0; entry < ask->entries; entry++) foresee(ask, work, m, entry);
        }
        done_with(work);
    }
    return failed;
}

/* Chances (entries, labels) of what entries turn out to be, moved so that the mean of the beliefs after each label,
 * (entries, labels, classes), nears those now, (entries, classes). Returns 0, or 1 without memory. */
int star_agree(float *chances, const float *after, const float *now, int64_t entries, int64_t labels, int64_t classes,
               int64_t rounds, int64_t threads) {
    const int64_t width = padded(labels);
    int failed = 0;
#pragma omp parallel num_threads(threads)
    {
        float *p = calloc((classes + 2) * width, sizeof(float)), *factor = p ? p + width : NULL;
        float *by_class = p ? factor + width : NULL; /* (classes, width) */
        if (!p) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(static)
        for (int64_t entry = 0; entry < entries; entry++) {
            const float *given = after + entry * labels * classes, *believed = now + entry * classes;
            if (!p) continue;
            memcpy(p, chances + entry * labels, labels * sizeof(float));
            for (int64_t k = 0; k < labels; k++)
                for (int64_t c = 0; c < classes; c++) by_class[c * width + k] = given[k * classes + c];
            for (int64_t round = 0; round < rounds; round++) {
                memset(factor, 0, width * sizeof(float));
                for (const float *q = by_class, *y = believed; y < believed + classes; y++, q += width) {
                    V part = {};
                    for (int64_t k = 0; k < width; k += LANES) part += at(p + k) * at(q + k);
                    const float mean = sum(part), ratio = *y / (mean > 1e-30f ? mean : 1e-30f);
                    for (int64_t k = 0; k < width; k += LANES) put(factor + k, at(factor + k) + at(q + k) * ratio);
                }
                V all = {};
                for (int64_t k = 0; k < width; k += LANES) all += at(p + k) * at(factor + k);
                const float whole = sum(all);
                if (!(whole > 0)) break; /* no label allows the belief now */
                for (int64_t k = 0; k < width; k += LANES) put(p + k, at(p + k) * at(factor + k) / whole);
            }
            memcpy(chances + entry * labels, p, labels * sizeof(float));
        }
        free(p);
    }
    return failed;
}
