/* Exact inference for many rows of evidence, each by bucket elimination of its own; see ops/buckets.py.

What a row observes is no variable of its model any more, so its tables are far smaller than those that would do for
all rows. For each pattern of what is observed: variables are put in an order; each has a bucket, a table over itself
and what it is eliminated from; buckets form trees. Products are passed to the roots and back. */

#ifndef __clang__
#pragma GCC optimize("O3") /* loops over tables as vectors */
#endif

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AXES 64
#define INNER 16 /* entries from which on the innermost axes of a table are taken at once */
#define SMALL 12.0 /* log2 of the entries from which on a second order is tried */
#define LARGE 12.0 /* log2 of the entries for each variable from which on a third is tried */
#define FLUSHED -690.0 /* log of what may be lost beside 1 */
#define NARROW -500.0  /* log of the smallest entry of a product from which on entries have powers of 2 beside them */
#define REVIVED -300.0 /* log of what it takes to bring that back */

typedef struct {
    int64_t variables, factors, rows, asked, chunks, threads, width, soft_width, limit, maximise, dry;
    const int32_t *labels;
    const int64_t *scope_at;
    const int32_t *scopes;     /* of all factors, ascending in each */
    const int64_t *table_at;
    const double *tables;      /* last variable fastest, largest entry 1 */
    const int32_t *child;      /* the variable over which a factor sums to `total`, -1 = none */
    const double *total;
    const double *least;       /* log of the smallest entry > 0 */
    const int64_t *asked_at;
    const int32_t *asked_scopes;
    const int64_t *out_at;     /* where in a row of `out` */
    const int64_t *soft_at;    /* where in a row of `soft` the likelihoods of a variable are, -1 = none */
    const double *soft;
    const int32_t *codes;      /* (rows, variables), -1 = not observed */
    const int64_t *order;      /* rows with one pattern are neighbours */
    const double *weights;
    double *out, *log_z, *entries, *counts; /* counts: (chunks, entries of all tables) or NULL */
    int32_t *status, *best;
} Job;

#define SUMMED -1 /* uses of a variable that was summed out with its only factor */

enum { DONE, LOST, TOO_LARGE, NO_MEMORY, IMPOSSIBLE };

typedef struct {
    int64_t n, words, has_plan, large;
    double entries, barren;
    int32_t *seen, *index, *var, *order, *position, *parent, *scope, *alive, *uses, *next_factor, *first_factor, *needed,
        *child_next, *child_first, *state;
    int64_t *at, *size, *separator, *table_of, *message_of;
    uint64_t *near, *left;
    double *cost, *bits, *table, *message, *scale, *least, *from, *likelihood;
    int64_t scope_room, room, message_room, power_room, *offsets, *power;
} Work;

int64_t job_size(void) { return sizeof(Job); }

/* --- tables ------------------------------------------------------------------------------------------------------ */

typedef struct {
    int axes, outer;
    int64_t inner, rounds, dims[AXES], strides[AXES], *offsets;
    int kind; /* of the innermost axes: 0 the same entry, 1 entries side by side, 2 others */
} Walk;

static void prepare(Walk *w) {
    w->inner = 1;
    int a = w->axes;
    while (a > 0 && w->inner < INNER) w->inner *= w->dims[--a];
    w->outer = a;
    w->rounds = 1;
    for (int b = 0; b < a; b++) w->rounds *= w->dims[b];
    int64_t made = 1;
    w->offsets[0] = 0;
    for (int b = w->axes - 1; b >= a; b--) {
        for (int64_t j = 1; j < w->dims[b]; j++)
            for (int64_t i = 0; i < made; i++) w->offsets[j * made + i] = w->offsets[i] + j * w->strides[b];
        made *= w->dims[b];
    }
    int same = 1, beside = 1;
    for (int64_t j = 0; j < made; j++) {
        same &= w->offsets[j] == 0;
        beside &= w->offsets[j] == j;
    }
    w->kind = same ? 0 : beside ? 1 : 2;
}

#define EACH(w, base, body)                                                                                           \
    {                                                                                                                 \
        int64_t base = 0, counter[AXES] = {0};                                                                        \
        for (int64_t round = 0; round < (w)->rounds; round++) {                                                       \
            body;                                                                                                     \
            for (int b = (w)->outer - 1; b >= 0; b--) {                                                               \
                base += (w)->strides[b];                                                                              \
                if (++counter[b] < (w)->dims[b]) break;                                                               \
                base -= (w)->strides[b] * (w)->dims[b];                                                               \
                counter[b] = 0;                                                                                       \
            }                                                                                                         \
        }                                                                                                             \
    }

/* t *= part, or t = part; part is spread over the axes of t */
static void multiply(double *restrict t, const double *restrict part, const Walk *w, int first) {
    const int64_t n = w->inner, *off = w->offsets;
    if (first) {
        if (w->kind == 0) EACH(w, base, { double x = part[base]; for (int64_t j = 0; j < n; j++) t[j] = x; t += n; })
        else if (w->kind == 1) EACH(w, base, { memcpy(t, part + base, n * sizeof(double)); t += n; })
        else EACH(w, base, { for (int64_t j = 0; j < n; j++) t[j] = part[base + off[j]]; t += n; })
    } else {
        if (w->kind == 0) EACH(w, base, { double x = part[base]; for (int64_t j = 0; j < n; j++) t[j] *= x; t += n; })
        else if (w->kind == 1) EACH(w, base, { for (int64_t j = 0; j < n; j++) t[j] *= part[base + j]; t += n; })
        else EACH(w, base, { for (int64_t j = 0; j < n; j++) t[j] *= part[base + off[j]]; t += n; })
    }
}

/* part += weight * the sum of t over the axes that part does not have */
static void collect(const double *restrict t, double *restrict part, const Walk *w, double weight) {
    const int64_t n = w->inner, *off = w->offsets;
    if (w->kind == 0)
        EACH(w, base, { double x = 0; for (int64_t j = 0; j < n; j++) x += t[j]; part[base] += weight * x; t += n; })
    else if (w->kind == 1)
        EACH(w, base, { for (int64_t j = 0; j < n; j++) part[base + j] += weight * t[j]; t += n; })
    else
        EACH(w, base, { for (int64_t j = 0; j < n; j++) part[base + off[j]] += weight * t[j]; t += n; })
}

/* --- the order --------------------------------------------------------------------------------------------------- */

#define BITS_OF(set, u, words, body)                                                                                  \
    for (int64_t word_ = 0; word_ < (words); word_++)                                                                 \
        for (uint64_t rest_ = (set)[word_]; rest_; rest_ &= rest_ - 1) {                                              \
            const int64_t u = 64 * word_ + __builtin_ctzll(rest_);                                                    \
            body;                                                                                                     \
        }

enum { SIZE, FILL, WEIGHTED }; /* rules of order */

static double log_size(const Work *w, const uint64_t *near) {
    double bits = 0;
    BITS_OF(near, u, w->words, bits += w->bits[u]);
    return bits;
}

static double missing(const Work *w, int64_t v, int rule) {
    const uint64_t *near = w->left + v * w->words;
    double edges = 0;
    BITS_OF(near, u, w->words, {
        const uint64_t *other = w->left + u * w->words;
        if (rule == FILL) {
            for (int64_t k = 0; k < w->words; k++) edges += __builtin_popcountll(near[k] & ~other[k]);
        } else {
            for (int64_t k = 0; k < w->words; k++)
                for (uint64_t rest = near[k] & ~other[k]; rest; rest &= rest - 1)
                    edges += w->bits[u] * w->bits[64 * k + __builtin_ctzll(rest)];
        }
    });
    return edges + 1e-3 * log_size(w, near);
}

static double cost_of(const Work *w, int64_t v, int rule) {
    return rule == SIZE ? log_size(w, w->left + v * w->words) : missing(w, v, rule);
}

/* Sets order, position and the scopes of buckets; the entries of all buckets, infinite beyond `cap`. A set of what is
near a variable has the variable itself. Next comes the variable with the smallest bucket, or the fewest new edges, which
may count by the bits of their ends. */
static double eliminate(Work *w, int rule, double cap) {
    const int64_t n = w->n, words = w->words;
    double entries = 0;
    int64_t at = 0;
    memcpy(w->left, w->near, n * words * sizeof(uint64_t));
    for (int64_t v = 0; v < n; v++) w->cost[v] = cost_of(w, v, rule);
    uint64_t changed[words];
    for (int64_t step = 0; step < n; step++) {
        int64_t v = 0;
        double least = INFINITY;
        for (int64_t u = 0; u < n; u++)
            if (w->cost[u] < least) least = w->cost[u], v = u;
        const uint64_t *near = w->left + v * words;
        const double size = log_size(w, near);
        if (size > 62 || (entries += exp2(size)) > cap) return INFINITY;
        w->order[step] = v;
        w->position[v] = step;
        w->at[step] = at;
        w->cost[v] = INFINITY;
        if (at + n > w->scope_room) {
            w->scope_room = 2 * (at + n);
            int32_t *more = realloc(w->scope, w->scope_room * sizeof(int32_t));
            if (!more) return NAN;
            w->scope = more;
        }
        memset(changed, 0, sizeof changed);
        BITS_OF(near, u, words, {
            w->scope[at++] = u;
            if (u != v) {
                uint64_t *other = w->left + u * words;
                for (int64_t k = 0; k < words; k++) other[k] |= near[k];
                other[v / 64] &= ~(1ull << (v % 64));
                if (rule != SIZE) for (int64_t k = 0; k < words; k++) changed[k] |= other[k];
            }
        });
        if (rule == SIZE) memcpy(changed, near, sizeof changed);
        BITS_OF(changed, u, words, {
            if (w->cost[u] < INFINITY) w->cost[u] = cost_of(w, u, rule);
        });
    }
    w->at[n] = at;
    return entries;
}

static void join(Work *w, const int32_t *scope, int64_t count) {
    for (int64_t a = 0; a < count; a++) {
        const int64_t v = w->index[scope[a]];
        if (v < 0) continue;
        for (int64_t b = 0; b < count; b++) {
            const int64_t u = w->index[scope[b]];
            if (u >= 0) w->near[v * w->words + u / 64] |= 1ull << (u % 64);
        }
    }
}

/* --- the plan of a pattern --------------------------------------------------------------------------------------- */

/* Leaves out factors of which nothing that is asked or observed can learn: those that sum to a constant over a variable
that is in no other factor. */
static void prune(const Job *j, Work *w, const int32_t *is_asked) {
    w->barren = 0;
    memset(w->uses, 0, j->variables * sizeof(int32_t));
    for (int64_t f = 0; f < j->factors; f++) {
        w->alive[f] = 1;
        for (int64_t a = j->scope_at[f]; a < j->scope_at[f + 1]; a++) w->uses[j->scopes[a]]++;
    }
    if (j->maximise || j->counts) return;
    for (int again = 1; again;) {
        again = 0;
        for (int64_t f = j->factors - 1; f >= 0; f--) {
            const int32_t c = j->child[f];
            if (!w->alive[f] || c < 0 || w->seen[c] || is_asked[c] || w->uses[c] > 1) continue;
            w->alive[f] = 0;
            w->barren += log(j->total[f]);
            again = 1;
            for (int64_t a = j->scope_at[f]; a < j->scope_at[f + 1]; a++) w->uses[j->scopes[a]]--;
            w->uses[c] = SUMMED;
        }
    }
}

static int by_position(const void *a, const void *b) { return *(const int32_t *)b - *(const int32_t *)a; }

/* The bucket of a list of variables: the first to be eliminated; -1 if all are observed. */
static int64_t bucket_of(const Work *w, const int32_t *scope, int64_t count) {
    int64_t first = -1;
    for (int64_t a = 0; a < count; a++) {
        const int64_t v = w->index[scope[a]];
        if (v >= 0 && (first < 0 || w->position[v] < first)) first = w->position[v];
    }
    return first;
}

static int plan(const Job *j, Work *w, const int32_t *is_asked) {
    prune(j, w, is_asked);
    int64_t n = 0;
    for (int64_t v = 0; v < j->variables; v++) {
        const int unused = !w->seen[v] && w->uses[v] <= 0 && !is_asked[v] && !j->maximise;
        if (unused && w->uses[v] != SUMMED) w->barren += log(j->labels[v]);
        w->index[v] = w->seen[v] == 1 || unused ? -1 : n;
        if (w->index[v] >= 0) w->var[n] = v, w->bits[n] = log2(j->labels[v]), n++;
    }
    w->n = n;
    w->words = (n + 63) / 64;
    memset(w->near, 0, n * w->words * sizeof(uint64_t));
    for (int64_t v = 0; v < n; v++) w->near[v * w->words + v / 64] |= 1ull << (v % 64);
    for (int64_t f = 0; f < j->factors; f++)
        if (w->alive[f]) join(w, j->scopes + j->scope_at[f], j->scope_at[f + 1] - j->scope_at[f]);
    for (int64_t q = 0; q < j->asked; q++) join(w, j->asked_scopes + j->asked_at[q], j->asked_at[q + 1] - j->asked_at[q]);
    const double cap = 64.0 * j->limit;
    double entries = n ? eliminate(w, SIZE, cap) : 0;
    int best = SIZE, last = SIZE;
    for (int rule = FILL; rule <= WEIGHTED && entries > (rule == FILL ? exp2(SMALL) : n * exp2(LARGE)); rule++) {
        const double other = eliminate(w, last = rule, fmin(cap, entries));
        if (other < entries || isnan(other)) entries = other, best = rule;
    }
    if (best != last) entries = eliminate(w, best, cap);
    if (isnan(entries)) return NO_MEMORY;
    w->entries = entries;
    w->large = entries > j->limit;
    w->has_plan = 1;
    if (w->large || j->dry) return DONE;
    int64_t tables = 0, messages = 0;
    for (int64_t i = 0; i < n; i++) {
        w->child_first[i] = w->first_factor[i] = -1;
        w->needed[i] = j->counts != NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = w->at[i], count = w->at[i + 1] - from;
        int64_t size = 1;
        for (int64_t a = from; a < from + count; a++) {
            size *= j->labels[w->var[w->scope[a]]];
            w->scope[a] = w->position[w->scope[a]];
        }
        qsort(w->scope + from, count, sizeof(int32_t), by_position);
        w->parent[i] = count > 1 ? w->scope[from + count - 2] : -1;
        w->size[i] = size;
        w->separator[i] = size / j->labels[w->var[w->order[i]]];
        w->table_of[i] = tables;
        w->message_of[i] = messages;
        tables += size;
        messages += w->separator[i];
        if (w->parent[i] >= 0) w->child_next[i] = w->child_first[w->parent[i]], w->child_first[w->parent[i]] = i;
    }
    for (int64_t f = j->factors - 1; f >= 0; f--) {
        const int64_t i = bucket_of(w, j->scopes + j->scope_at[f], j->scope_at[f + 1] - j->scope_at[f]);
        w->next_factor[f] = -2;
        if (w->alive[f] && i >= 0) w->next_factor[f] = w->first_factor[i], w->first_factor[i] = f;
    }
    for (int64_t q = 0; q < j->asked; q++) {
        const int64_t i = bucket_of(w, j->asked_scopes + j->asked_at[q], j->asked_at[q + 1] - j->asked_at[q]);
        if (i >= 0) w->needed[i] = 1;
    }
    for (int64_t i = 0; i < n; i++)
        if (w->needed[i] && w->parent[i] >= 0) w->needed[w->parent[i]] = 1;
    if (tables > w->room || messages > w->message_room) {
        free(w->table), free(w->message), free(w->from);
        w->room = tables > w->room ? tables : w->room;
        w->message_room = messages > w->message_room ? messages : w->message_room;
        w->table = malloc(w->room * sizeof(double));
        w->message = malloc(w->message_room * sizeof(double));
        w->from = malloc(w->message_room * sizeof(double));
        if (!w->table || !w->message || !w->from) return w->has_plan = w->room = w->message_room = 0, NO_MEMORY;
    }
    return DONE;
}

/* --- a row ------------------------------------------------------------------------------------------------------- */

static void axes_of(const Job *j, const Work *w, int64_t i, Walk *walk) {
    walk->axes = w->at[i + 1] - w->at[i];
    for (int a = 0; a < walk->axes; a++) walk->dims[a] = j->labels[w->var[w->order[w->scope[w->at[i] + a]]]];
}

static int axis_of(const Work *w, int64_t i, int32_t position) {
    const int32_t *scope = w->scope + w->at[i];
    int a = 0;
    while (scope[a] != position) a++;
    return a;
}

/* Strides of a table over `scope`, last variable fastest, in the axes of bucket i; returns where observed labels lead. */
static int64_t lay(const Job *j, const Work *w, int64_t i, const int32_t *scope, int64_t count, const int32_t *codes,
                   Walk *walk) {
    int64_t stride = 1, base = 0;
    if (i >= 0) memset(walk->strides, 0, walk->axes * sizeof(int64_t));
    for (int64_t a = count - 1; a >= 0; a--) {
        const int32_t v = scope[a], free_ = w->index[v];
        if (free_ < 0) base += stride * (codes[v] < 0 ? 0 : codes[v]);
        else walk->strides[axis_of(w, i, w->position[free_])] = stride;
        stride *= j->labels[v];
    }
    if (i >= 0) prepare(walk);
    return base;
}

/* Strides of the message of bucket c in the axes of its parent i. */
static void lay_message(const Work *w, int64_t i, int64_t c, Walk *walk) {
    int64_t stride = 1;
    memset(walk->strides, 0, walk->axes * sizeof(int64_t));
    for (int64_t a = w->at[c + 1] - 2; a >= w->at[c]; a--) {
        const int axis = axis_of(w, i, w->scope[a]);
        walk->strides[axis] = stride;
        stride *= walk->dims[axis];
    }
    prepare(walk);
}

/* The log of the smallest entry > 0. */
static double log_least(const double *x, int64_t n) {
    double least = INFINITY;
    for (int64_t k = 0; k < n; k++)
        if (x[k] > 0 && x[k] < least) least = x[k];
    return least < INFINITY ? log(least) : 0;
}

/* Divides by the largest entry; returns its log, and that of the smallest entry > 0 that is left. */
static double scaled(double *t, int64_t n, double *least) {
    double most = 0;
    for (int64_t k = 0; k < n; k++) most = t[k] > most ? t[k] : most;
    if (!(most > 0)) return 0;
    for (int64_t k = 0; k < n; k++) t[k] /= most;
    *least = log_least(t, n);
    return log(most);
}

/* Moves what is small about the entries of a product to powers of 2; 0 if there is no memory for them. */
static int widen(Work *w, double *t, int64_t n, int first) {
    if (n > w->power_room) {
        free(w->power);
        w->power_room = (w->power = malloc(n * sizeof(int64_t))) ? n : 0;
        if (!w->power) return 0;
    }
    if (first) memset(w->power, 0, n * sizeof(int64_t));
    for (int64_t k = 0; k < n; k++) {
        int power;
        t[k] = frexp(t[k], &power);
        w->power[k] += power;
    }
    return 1;
}

/* Puts the powers back, relative to the largest entry, whose log it returns; `flushed` if one is too small for that. */
static double narrow(const Work *w, double *t, int64_t n, int *flushed) {
    int64_t most = INT64_MIN;
    for (int64_t k = 0; k < n; k++)
        if (t[k] > 0 && w->power[k] > most) most = w->power[k];
    if (most == INT64_MIN) return 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t power = w->power[k] - most;
        *flushed |= t[k] > 0 && power * M_LN2 < FLUSHED;
        t[k] = power < -2000 ? 0 : ldexp(t[k], power);
    }
    return most * M_LN2;
}

static int up(const Job *j, Work *w, int64_t row, Walk *walk) {
    const int32_t *codes = j->codes + row * j->variables;
    const double *soft = j->soft + row * j->soft_width;
    double log_z = w->barren, later = 0;
    int flushed = 0;
    for (int64_t f = 0; f < j->factors; f++) {
        if (!w->alive[f] || w->next_factor[f] != -2) continue;
        const double x = j->tables[j->table_at[f] + lay(j, w, -1, j->scopes + j->scope_at[f],
                                                        j->scope_at[f + 1] - j->scope_at[f], codes, walk)];
        if (!(x > 0)) return j->least[f] < FLUSHED ? LOST : IMPOSSIBLE;
        log_z += log(x);
    }
    for (int64_t v = 0; v < j->variables; v++)
        if (j->soft_at[v] >= 0 && w->index[v] < 0) {
            const double x = soft[j->soft_at[v] + (codes[v] < 0 ? 0 : codes[v])];
            if (!(x > 0)) return IMPOSSIBLE;
            log_z += log(x);
        }
    for (int64_t i = 0; i < w->n; i++) {
        double *t = w->table + w->table_of[i], *m = w->message + w->message_of[i], least = 0, sum = 0, grown = 0;
        const int32_t v = w->var[w->order[i]];
        int first = 1, wide = 0;
        axes_of(j, w, i, walk);
#define PART(values, smallest)                                                                                        \
    {                                                                                                                 \
        const double new_ = (smallest);                                                                               \
        if (!first && least + new_ < NARROW) {                                                                        \
            if (!widen(w, t, w->size[i], !wide)) return NO_MEMORY;                                                    \
            wide = 1, least = -M_LN2;                                                                                 \
        }                                                                                                             \
        multiply(t, values, walk, first);                                                                             \
        first = 0, least += new_;                                                                                     \
        flushed |= new_ < FLUSHED;                                                                                    \
    }
        for (int64_t c = w->child_first[i]; c >= 0; c = w->child_next[c]) {
            lay_message(w, i, c, walk);
            PART(w->message + w->message_of[c], w->least[c])
        }
        for (int64_t f = w->first_factor[i]; f >= 0; f = w->next_factor[f]) {
            const int64_t base = lay(j, w, i, j->scopes + j->scope_at[f], j->scope_at[f + 1] - j->scope_at[f], codes, walk);
            PART(j->tables + j->table_at[f] + base, j->least[f])
        }
        if (j->soft_at[v] >= 0) {
            double smallest = 0;
            lay(j, w, i, &v, 1, codes, walk);
            memcpy(w->likelihood, soft + j->soft_at[v], j->labels[v] * sizeof(double));
            log_z += scaled(w->likelihood, j->labels[v], &smallest);
            PART(w->likelihood, smallest)
        }
#undef PART
        if (first) for (int64_t e = 0; e < w->size[i]; e++) t[e] = 1;
        const int before = flushed; /* what is lost from here on was far less than what this bucket has */
        if (wide && widen(w, t, w->size[i], 0)) grown = narrow(w, t, w->size[i], &flushed);
        else if (least < NARROW) grown = scaled(t, w->size[i], &least);
        const int64_t k = j->labels[v], s = w->separator[i];
        for (int64_t o = 0; o < s; o++) {
            double x = t[o * k];
            if (j->maximise) for (int64_t e = 1; e < k; e++) x = t[o * k + e] > x ? t[o * k + e] : x;
            else for (int64_t e = 1; e < k; e++) x += t[o * k + e];
            m[o] = x;
            sum = j->maximise ? (x > sum ? x : sum) : sum + x;
        }
        if (!(sum > 0)) return flushed ? LOST : IMPOSSIBLE;
        for (int64_t o = 0; o < s; o++) m[o] /= sum;
        w->scale[i] = sum;
        w->least[i] = log_least(m, s);
        log_z += log(sum) + grown;
        if (before && (later += log(sum) + grown) < REVIVED) return LOST;
    }
    j->log_z[row] = log_z;
    return DONE;
}

static void down(const Job *j, Work *w, Walk *walk) {
    for (int64_t i = w->n - 1; i >= 0; i--) {
        if (!w->needed[i]) continue;
        double *t = w->table + w->table_of[i];
        const double *m = w->message + w->message_of[i];
        const int64_t k = j->labels[w->var[w->order[i]]], s = w->separator[i], up = w->parent[i];
        double *from = w->from;
        if (up < 0) {
            from[0] = 1;
        } else {
            memset(from, 0, s * sizeof(double));
            axes_of(j, w, up, walk);
            lay_message(w, up, i, walk);
            collect(w->table + w->table_of[up], from, walk, 1.0);
        }
        const double one = 1 / w->scale[i];
        for (int64_t o = 0; o < s; o++) {
            const double ratio = m[o] > 0 ? from[o] / m[o] : 0;
            for (int64_t e = 0; e < k; e++) t[o * k + e] = t[o * k + e] * one * ratio;
        }
    }
}

static void answer(const Job *j, Work *w, int64_t row, double *counts, Walk *walk) {
    const int32_t *codes = j->codes + row * j->variables;
    double *out = j->out + row * j->width;
    const double weight = j->weights ? j->weights[row] : 1;
    for (int64_t q = 0; q < j->asked; q++) {
        const int32_t *scope = j->asked_scopes + j->asked_at[q];
        const int64_t count = j->asked_at[q + 1] - j->asked_at[q], i = bucket_of(w, scope, count);
        if (i >= 0) axes_of(j, w, i, walk);
        const int64_t base = lay(j, w, i, scope, count, codes, walk);
        if (i < 0) out[j->out_at[q] + base] = 1;
        else collect(w->table + w->table_of[i], out + j->out_at[q] + base, walk, 1.0);
    }
    for (int64_t f = 0; counts && f < j->factors; f++) {
        const int32_t *scope = j->scopes + j->scope_at[f];
        const int64_t count = j->scope_at[f + 1] - j->scope_at[f], i = bucket_of(w, scope, count);
        if (i >= 0) axes_of(j, w, i, walk);
        const int64_t base = j->table_at[f] + lay(j, w, i, scope, count, codes, walk);
        if (i < 0) counts[base] += weight;
        else collect(w->table + w->table_of[i], counts + base, walk, weight);
    }
}

static void assign(const Job *j, Work *w, int64_t row) {
    int32_t *best = j->best + row * j->variables;
    for (int64_t v = 0; v < j->variables; v++) best[v] = j->codes[row * j->variables + v] < 0 ? 0 : j->codes[row * j->variables + v];
    for (int64_t i = w->n - 1; i >= 0; i--) {
        const int32_t v = w->var[w->order[i]];
        const int64_t k = j->labels[v];
        int64_t o = 0, label = 0;
        for (int64_t a = w->at[i]; a < w->at[i + 1] - 1; a++) {
            const int32_t u = w->var[w->order[w->scope[a]]];
            o = o * j->labels[u] + best[u];
        }
        const double *t = w->table + w->table_of[i] + o * k;
        for (int64_t e = 1; e < k; e++) if (t[e] > t[label]) label = e;
        best[v] = label;
    }
}

/* --- all rows ---------------------------------------------------------------------------------------------------- */

static int make(const Job *j, Work *w) {
    const int64_t n = j->variables, f = j->factors, words = (n + 63) / 64;
    int64_t widest = 1;
    for (int64_t v = 0; v < n; v++) widest = j->labels[v] > widest ? j->labels[v] : widest;
    int32_t **ints[] = {&w->seen, &w->index, &w->var, &w->order, &w->position, &w->parent, &w->uses, &w->first_factor,
                        &w->needed, &w->child_next, &w->child_first, &w->state};
    int64_t **longs[] = {&w->at, &w->size, &w->separator, &w->table_of, &w->message_of};
    double **doubles[] = {&w->cost, &w->bits, &w->scale, &w->least};
    int ok = 1;
    for (size_t k = 0; k < sizeof ints / sizeof *ints; k++) ok &= (*ints[k] = calloc(n + 1, sizeof(int32_t))) != NULL;
    for (size_t k = 0; k < sizeof longs / sizeof *longs; k++) ok &= (*longs[k] = calloc(n + 1, sizeof(int64_t))) != NULL;
    for (size_t k = 0; k < sizeof doubles / sizeof *doubles; k++)
        ok &= (*doubles[k] = calloc(n + 1, sizeof(double))) != NULL;
    ok &= (w->alive = calloc(f + 1, sizeof(int32_t))) != NULL;
    ok &= (w->next_factor = calloc(f + 1, sizeof(int32_t))) != NULL;
    ok &= (w->near = calloc(n * words + 1, sizeof(uint64_t))) != NULL;
    ok &= (w->left = calloc(n * words + 1, sizeof(uint64_t))) != NULL;
    ok &= (w->offsets = calloc(INNER * widest, sizeof(int64_t))) != NULL;
    ok &= (w->likelihood = calloc(widest, sizeof(double))) != NULL;
    return ok;
}

static void drop(Work *w) {
    void *all[] = {w->seen, w->index, w->var, w->order, w->position, w->parent, w->uses, w->first_factor, w->needed,
                   w->child_next, w->child_first, w->state, w->at, w->size, w->separator, w->table_of, w->message_of,
                   w->cost, w->bits, w->scale, w->least, w->alive, w->next_factor, w->near, w->left, w->offsets, w->scope,
                   w->table, w->message, w->from, w->likelihood, w->power};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
}

/* What a variable is in this row: 0 free, 1 observed (or of one label), 2 free with a likelihood. */
static int32_t state_of(const Job *j, const int32_t *codes, int64_t v) {
    if (codes[v] >= 0 || j->labels[v] == 1) return 1;
    return j->soft_at[v] >= 0 ? 2 : 0;
}

static int solve_row(const Job *j, Work *w, int64_t row, const int32_t *is_asked, double *counts) {
    const int32_t *codes = j->codes + row * j->variables;
    for (int64_t v = 0; v < j->variables; v++) w->state[v] = state_of(j, codes, v);
    if (!w->has_plan || memcmp(w->state, w->seen, j->variables * sizeof(int32_t))) {
        memcpy(w->seen, w->state, j->variables * sizeof(int32_t));
        w->has_plan = 0;
        if (plan(j, w, is_asked) != DONE) return NO_MEMORY;
    }
    j->entries[row] = w->entries;
    if (w->large) return TOO_LARGE;
    if (j->dry) return DONE;
    Walk walk;
    walk.offsets = w->offsets;
    const int status = up(j, w, row, &walk);
    if (status == IMPOSSIBLE) return DONE; /* with the log Z of -inf that it came with */
    if (status != DONE) return status;
    if (j->maximise) {
        assign(j, w, row);
    } else {
        down(j, w, &walk);
        answer(j, w, row, counts, &walk);
    }
    return DONE;
}

/* The number of rows that got no memory. */
int64_t solve_rows(const Job *j) {
    int64_t starved = 0;
    const int64_t chunk = (j->rows + j->chunks - 1) / j->chunks, all = j->table_at[j->factors];
    int32_t *is_asked = calloc(j->variables + 1, sizeof(int32_t));
    if (!is_asked) return j->rows;
    for (int64_t a = 0; a < j->asked_at[j->asked]; a++) is_asked[j->asked_scopes[a]] = 1;
#pragma omp parallel num_threads(j->threads) reduction(+ : starved)
    {
        Work w = {0};
        const int ok = make(j, &w);
#pragma omp for schedule(dynamic, 1)
        for (int64_t part = 0; part < j->chunks; part++)
            for (int64_t r = part * chunk; r < (part + 1) * chunk && r < j->rows; r++) {
                const int64_t row = j->order[r];
                j->status[row] = ok ? solve_row(j, &w, row, is_asked, j->counts ? j->counts + part * all : NULL) : NO_MEMORY;
                starved += j->status[row] == NO_MEMORY;
            }
        drop(&w);
    }
    free(is_asked);
    return starved;
}
