/* Messages and their gradients on the CPU: formulas 1 to 6 of docs/kernels.md.

Node tensors are (models, nodes, k, width) and edge tensors (models, edges, k, width); a narrow one has a width of 1 and
is the same in every sample. Eight numbers are taken at once: eight samples of one edge or, where the width is 1, eight
edges of one node. A target node, or in the gradient a source node, belongs to one thread and is summed in a fixed
order, so results do not depend on the number of threads. Numbers are float, or double where DOUBLE is defined. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef DOUBLE
typedef double REAL;
typedef int64_t INTEGER;
#define MANTISSA 52
#define MAGIC 0x1.8p52 /* a number plus this has its nearest integer in the lowest bits */
#define LN2_HIGH 0x1.62e42fefp-1
#define LN2_LOW 0x1.473de6af278edp-34
#define LOWEST -708.0
#define EXP_TERMS 13
#define LOG_TERMS 12
#define LARGE 300.0 /* exponentials up to this may be multiplied */
#define REACH 600.0 /* and so many of them that their exponents add up to this at most */
#else
typedef float REAL;
typedef int32_t INTEGER;
#define MANTISSA 23
#define MAGIC 0x1.8p23f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
#define LOWEST -87.0f
#define EXP_TERMS 7
#define LOG_TERMS 5
#define LARGE 40.0f
#define REACH 80.0f
#endif

#define LANES 8
#define AHEAD 6     /* edges */
#define AHEAD_BYTES 256
#define SLOTS 64    /* edges whose tables are read at once */
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
enum { SUM, MAX, LINEAR };

typedef struct {
    const REAL *tensor;
    int64_t wide;
} Part;

typedef struct {
    REAL *tensor;
    int64_t wide, old; /* old: add to the present value */
} Sink;

typedef struct {
    int64_t mode, models, sources, targets, edges, table_rows, s, t, step_s, step_t, width, samples, blocks, threads;
    /* samples: at most in a block */
    const REAL *table, *factor, *rho; /* rho may be null; both in the order of the list, as are the next three */
    const int32_t *edge_ids, *node_ids, *rows, *starts;
    Part belief[4], reverse; /* minus the first, plus the others */
    REAL *beliefs;           /* room for their sum */
    int64_t beliefs_wide;
    REAL *edges_out, *inflow_out;         /* send: the first may be null */
    const REAL *inflow_grad, *edges_grad; /* send_backward: one of them may be null */
    Sink to_belief[4], to_reverse, to_table;
} Job;

int64_t job_size(void) { return sizeof(Job); } /* compared by the caller before it fills one in */

typedef REAL V __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef INTEGER I __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

INLINE V splat(REAL x) { return (V){x, x, x, x, x, x, x, x}; }
INLINE V pick(I mask, V a, V b) { return (V)((mask & (I)a) | (~mask & (I)b)); }
INLINE V larger(V a, V b) { return pick((I)(a > b) | (I)(a != a), a, b); } /* NaN if one is */
INLINE V minus_abs(V x) { return (V)((I)x | (I)splat((REAL)-0.0)); }
INLINE V load(const REAL *x) { return *(const V *)x; }

INLINE REAL total(V x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* exp(x) for x below LARGE; as good as 0 below LOWEST */
INLINE V exponential(V x) {
    static const double inverse[] = {1.0,          1.0,           1.0 / 2,        1.0 / 6,         1.0 / 24,
                                     1.0 / 120,    1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                     1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    x = pick((I)(x < (REAL)LOWEST), splat((REAL)LOWEST), x);
    V near = x * (REAL)0x1.71547652b82fep0 + (REAL)MAGIC, n = near - (REAL)MAGIC;
    V r = (x - n * (REAL)LN2_HIGH) - n * (REAL)LN2_LOW, y = splat((REAL)inverse[EXP_TERMS]);
#pragma GCC unroll 16
    for (int i = EXP_TERMS - 1; i >= 0; i--) y = y * r + (REAL)inverse[i];
    return (V)((I)y + ((I)near << MANTISSA));
}

/* log(a / b) for normal positive numbers, 0 where they are equal; NaN if one is not finite */
INLINE V log_ratio(V a, V b) {
    V zero = a - a;
    I n = ((I)a - (I)b + ((INTEGER)1 << (MANTISSA - 1))) >> MANTISSA; /* powers of 2 between them */
    a = (V)((I)a - (n << MANTISSA));
    V power = (V)(n + (I)splat((REAL)MAGIC)) - (REAL)MAGIC;
    V s = (a - b) / (a + b), z = s * s, y = splat((REAL)(2.0 / (2 * LOG_TERMS - 1)));
#pragma GCC unroll 16
    for (int i = LOG_TERMS - 2; i >= 0; i--) y = y * z + (REAL)(2.0 / (2 * i + 1));
    return power * (REAL)LN2_HIGH + (y * s + (power * (REAL)LN2_LOW + zero));
}

/* ---- memory of a thread ---- */

typedef struct {
    REAL *t, *exp_t;      /* tables times their factors, and exponentials of them, of SLOTS edges */
    V *c, *c_grad;        /* (s,) */
    V *x, *g;             /* (t,) */
    V *table_grad;        /* (s, t) */
    V *narrow_grad;       /* (s,) */
    REAL *belief_grad;    /* (s, samples) or (s, lanes) */
    REAL most;            /* of the absolute values in `t` */
    const REAL *one, *zero; /* (models, sources, width): shares of both labels of sources that nothing came back to */
} Room;

static void *make_room(const Job *job, Room *room) {
    size_t s = job->s, t = job->t, tables = (SLOTS + LANES) * s * t;
    size_t samples = job->width < job->samples ? job->width : job->samples;
    size_t lanes = 3 * s + 2 * t + (s > 1 ? s : SLOTS) * t, belief = s * (samples < LANES ? LANES : samples);
    REAL *all = aligned_alloc(64, ((2 * tables + lanes * LANES + belief) * sizeof(REAL) + 63) / 64 * 64);
    if (!all) return 0;
    room->c = (V *)all, room->c_grad = room->c + s, room->narrow_grad = room->c_grad + s;
    room->x = room->narrow_grad + s, room->g = room->x + t, room->table_grad = room->g + t;
    room->belief_grad = all + lanes * LANES;
    room->t = room->belief_grad + belief, room->exp_t = room->t + tables;
    return all;
}

/* Tables of `count` edges from `slot` on, 0 beyond; returns whether an entry is large */
INLINE int read_tables(const Job *job, const REAL *table, int64_t slot, int count, Room *room) {
    const REAL *factor = job->factor;
    int st = (int)(job->s * job->t), end = count * st, padded = (count + LANES - 1) / LANES * LANES * st;
    for (int k = 0, i = 0; k < count; k++) {
        const REAL *from = table + (int64_t)job->rows[slot + k] * st;
        for (int j = 0; j < st; j++) room->t[i++] = from[j] * factor[slot + k];
    }
    for (int i = end; i < padded; i++) room->t[i] = 0;
    if (job->mode != SUM) return 0;
    V limit = splat((REAL)LARGE), least = splat(0);
    for (int i = 0; i < padded; i += LANES) {
        V t = load(room->t + i);
        *(V *)(room->exp_t + i) = exponential(pick((I)(t > limit), limit, t));
        least = -larger(-least, -minus_abs(t));
    }
    room->most = 0;
    for (int i = 0; i < LANES; i++) room->most = -least[i] > room->most ? -least[i] : room->most;
    return room->most > (REAL)LARGE;
}

/* One entry of the tables of an edge for all lanes, or of eight edges */
INLINE V entry(const REAL *tables, int64_t i, int64_t st, int wide) {
    if (wide) return splat(tables[i]);
    V x;
    for (int j = 0; j < LANES; j++) x[j] = tables[j * st + i];
    return x;
}

/* Cavities of the source's labels: belief less the message that came back */
INLINE void cavities(const Job *job, const REAL *beliefs, const REAL *reverse, const int32_t *nodes,
                           const int32_t *edges, int live, int64_t w, V *c, int wide) {
    int64_t s = job->s, width = job->width;
    for (int64_t i = 0; i < s; i++) {
        if (wide) {
            int64_t b = nodes[0] * s + i;
            c[i] = job->beliefs_wide ? load(beliefs + b * width + w) : splat(beliefs[b]);
            if (reverse) {
                int64_t e = edges[0] * s + i;
                c[i] -= job->reverse.wide ? load(reverse + e * width + w) : splat(reverse[e]);
            }
        } else {
            V x = {0};
            for (int j = 0; j < live; j++) {
                x[j] = beliefs[nodes[j] * s + i];
                if (reverse) x[j] -= reverse[edges[j] * s + i];
            }
            c[i] = x;
        }
    }
}

INLINE V top_of(const V *c, int64_t s) {
    V top = {0};
    for (int64_t i = 0; i < s; i++) top = larger(top, c[i]);
    return top;
}

/* Adds up the parts of the beliefs of all nodes; where that is one part, it is the sum */
static const REAL *add_up(const Job *job) {
    const Part *part = job->belief;
    int count = 0, only = 0;
    for (int p = 0; p < 4; p++)
        if (part[p].tensor) count++, only = p;
    if (count == 1 && only > 0) return part[only].tensor;
    int64_t rows = job->models * job->sources * job->s, width = job->beliefs_wide ? job->width : 1;
    REAL *out = job->beliefs;
#pragma omp parallel for num_threads(job->threads) schedule(static) if (job->threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        REAL *to = out + row * width;
        for (int64_t w = 0; w < width; w++) to[w] = 0;
        for (int p = 0; p < 4; p++) {
            const REAL *from = part[p].tensor;
            if (!from) continue;
            REAL sign = p ? 1 : -1;
            if (part[p].wide && width > 1)
                for (int64_t w = 0; w < width; w++) to[w] += sign * from[row * width + w];
            else
                for (int64_t w = 0; w < width; w++) to[w] += sign * from[row];
        }
    }
    return out;
}

/* A cavity, with the table's entry for label `l` of the target unless that is -1 */
INLINE V joint_of(const Job *job, const V *c, const REAL *t, int64_t i, int64_t l, int wide) {
    if (l < 0) return c[i];
    return c[i] + entry(t, i * job->step_s + l * job->step_t, job->s * job->t, wide);
}

/* ---- messages: formulas 1 to 3 ---- */

/* log(1 + exp(e + c)) - log(1 + exp(c)) for any e */
NOINLINE V wide_range(V e, V c) {
    V one = splat(1), norm = one + exponential(minus_abs(c)), joint = one + exponential(minus_abs(e + c));
    return larger(e, -c) - larger(-c, splat(0)) + log_ratio(joint, norm);
}

/* Messages of max-product, or with large entries in the tables */
NOINLINE void careful_messages(const Job *job, const REAL *t, const V *c, V *out, int wide) {
    for (int64_t l = 0; l < job->t; l++) {
        out[l] = splat(0);
        for (int64_t k = l; k >= -1; k -= l + 1) { /* with the table, then without */
            V top = splat(0), sum = splat(1), sign = splat(k < 0 ? -1 : 1);
            for (int64_t i = 0; i < job->s; i++) top = larger(top, joint_of(job, c, t, i, k, wide));
            if (job->mode == SUM) {
                sum = exponential(-top);
                for (int64_t i = 0; i < job->s; i++) sum += exponential(joint_of(job, c, t, i, k, wide) - top);
            }
            out[l] += sign * (top + log_ratio(sum, splat(1)));
        }
    }
}

/* The messages of eight lanes to `out` (t,); cavities `c` (s,) are used up */
INLINE void messages(const Job *job, const REAL *t, const REAL *exp_t, int large, V *c, V *out, int binary, int wide) {
    int64_t s = binary ? 1 : job->s, st = s * job->t;
    V one = splat(1);
    if (binary && !large) {
        V down = exponential(minus_abs(c[0])), norm = one + down;
        I positive = (I)(c[0] > splat(0));
        V a = pick(positive, down, one), b = pick(positive, one, down);
        for (int64_t l = 0; l < job->t; l++) out[l] = log_ratio(a + entry(exp_t, l, st, wide) * b, norm);
    } else if (binary) {
        for (int64_t l = 0; l < job->t; l++) out[l] = wide_range(entry(t, l, st, wide), c[0]);
    } else if (job->mode == LINEAR) {
        for (int64_t l = 0; l < job->t; l++) {
            V m = splat(0);
            for (int64_t i = 0; i < s; i++) m += entry(t, i * job->step_s + l * job->step_t, st, wide) * c[i];
            out[l] = m;
        }
    } else if (job->mode == SUM && !large) {
        V top = top_of(c, s), rest = exponential(-top), norm = rest;
        for (int64_t i = 0; i < s; i++) norm += c[i] = exponential(c[i] - top);
        for (int64_t l = 0; l < job->t; l++) {
            V joint = rest;
            for (int64_t i = 0; i < s; i++) joint += c[i] * entry(exp_t, i * job->step_s + l * job->step_t, st, wide);
            out[l] = log_ratio(joint, norm);
        }
    } else
        careful_messages(job, t, c, out, wide);
}

INLINE void send_row(const Job *job, const REAL *all_beliefs, int64_t model, int64_t target, int64_t block,
                     int64_t begin, int64_t end, Room *room, int binary, int wide) {
    (void)block;
    int64_t s = job->s, t = job->t, st = s * t, width = job->width;
    const REAL *beliefs = all_beliefs + model * job->sources * s * (job->beliefs_wide ? width : 1);
    const REAL *reverse = job->reverse.tensor, *rho = job->rho;
    const REAL *table = job->table + model * job->table_rows * st;
    REAL *edges_out = job->edges_out, *inflow = job->inflow_out + (model * job->targets + target) * t * width;
    if (reverse) reverse += model * job->edges * s * (job->reverse.wide ? width : 1);
    if (edges_out) edges_out += model * job->edges * t * width;
    V *sums = room->g;
    for (int64_t l = 0; l < t; l++) {
        if (wide) memset(inflow + l * width + begin, 0, (end - begin) * sizeof(REAL));
        sums[l] = (V){0};
    }
    for (int64_t slot = job->starts[target]; slot < job->starts[target + 1]; slot += SLOTS) {
        int64_t left = job->starts[target + 1] - slot;
        int count = left < SLOTS ? (int)left : SLOTS;
        int large = read_tables(job, table, slot, count, room);
        for (int k = 0; k < count; k += wide ? 1 : LANES) {
            const int32_t *edges = job->edge_ids + slot + k, *nodes = job->node_ids + slot + k;
            const REAL *tables = room->t + k * st, *exp_tables = room->exp_t + k * st;
            if (wide) {
                V weight = splat(rho ? rho[slot + k] : 1);
                for (int64_t w = begin; w < end; w += LANES) {
                    cavities(job, beliefs, reverse, nodes, edges, 1, w, room->c, 1);
                    messages(job, tables, exp_tables, large, room->c, room->x, binary, 1);
                    for (int64_t l = 0; l < t; l++) {
                        V *sum = (V *)(inflow + l * width + w);
                        *sum += room->x[l] * weight;
                        if (edges_out) *(V *)(edges_out + (edges[0] * t + l) * width + w) = room->x[l];
                    }
                }
            } else {
                int live = count - k < LANES ? count - k : LANES;
                V weight = {0};
                for (int j = 0; j < live; j++) weight[j] = rho ? rho[slot + k + j] : 1;
                cavities(job, beliefs, reverse, nodes, edges, live, 0, room->c, 0);
                messages(job, tables, exp_tables, large, room->c, room->x, binary, 0);
                for (int64_t l = 0; l < t; l++) {
                    sums[l] += room->x[l] * weight;
                    for (int j = 0; j < live && edges_out; j++) edges_out[edges[j] * t + l] = room->x[l][j];
                }
            }
        }
    }
    for (int64_t l = 0; l < t && !wide; l++) inflow[l] = total(sums[l]);
}

/* ---- gradients: formulas 4 to 6 ---- */

NOINLINE V logistic(V x) {
    V down = exponential(minus_abs(x)), one = splat(1);
    return pick((I)(x > splat(0)), one, down) / (one + down);
}

/* Of max-product, or with large entries in the tables */
NOINLINE void careful_gradients(const Job *job, const REAL *t, const V *c, const V *g, V *c_grad, V *table_grad,
                                int wide) {
    V zero = splat(0), one = splat(1), all = zero;
    for (int64_t l = 0; l < job->t; l++) all += g[l];
    for (int64_t i = 0; i < job->s; i++) c_grad[i] = zero;
    for (int64_t l = -1; l < job->t; l++) {
        V top = zero, sum = zero, g_label = -all;
        if (l >= 0) g_label = g[l];
        for (int64_t i = 0; i < job->s; i++) top = larger(top, joint_of(job, c, t, i, l, wide));
        if (job->mode == SUM) sum = exponential(-top);
        for (int64_t i = 0; i < job->s; i++) {
            V joint = joint_of(job, c, t, i, l, wide);
            if (job->mode == SUM)
                sum += exponential(joint - top);
            else
                sum += pick((I)(joint == top), one, zero);
        }
        for (int64_t i = 0; i < job->s; i++) {
            V joint = joint_of(job, c, t, i, l, wide), share = exponential(joint - top) / sum;
            if (job->mode == MAX) share = pick((I)(joint == top) & (I)(joint > zero), one / larger(sum, one), zero);
            c_grad[i] += share * g_label;
            if (table_grad && l >= 0) table_grad[i * job->step_s + l * job->step_t] += share * g_label;
        }
    }
}

/* From gradients of messages `g` (t,) those of the cavities; those of the table, which may be null, are added up */
INLINE void gradients(const Job *job, const REAL *t, const REAL *exp_t, int large, V *c, const V *g, V *c_grad,
                      V *table_grad, int binary, int wide) {
    int64_t s = binary ? 1 : job->s, st = s * job->t;
    V zero = splat(0), one = splat(1);
    if (binary && large) {
        V share = logistic(c[0]), sum = zero;
        for (int64_t l = 0; l < job->t; l++) {
            V joint = logistic(c[0] + entry(t, l, st, wide));
            if (table_grad) table_grad[l] += joint * g[l];
            sum += (joint - share) * g[l];
        }
        c_grad[0] = sum;
    } else if (large || job->mode == MAX) {
        careful_gradients(job, t, c, g, c_grad, table_grad, wide);
    } else if (binary) {
        V down = exponential(minus_abs(c[0])), sum = zero;
        I positive = (I)(c[0] > zero);
        V a = pick(positive, down, one), b = pick(positive, one, down), share = b / (one + down);
        for (int64_t l = 0; l < job->t; l++) {
            V product = b * entry(exp_t, l, st, wide), joint = product / (a + product);
            if (table_grad) table_grad[l] += joint * g[l];
            sum += (joint - share) * g[l];
        }
        c_grad[0] = sum;
    } else if (job->mode == LINEAR) {
        for (int64_t i = 0; i < s; i++) {
            V sum = zero;
            for (int64_t l = 0; l < job->t; l++) {
                int64_t at = i * job->step_s + l * job->step_t;
                sum += entry(t, at, st, wide) * g[l];
                if (table_grad) table_grad[at] += c[i] * g[l];
            }
            c_grad[i] = sum;
        }
    } else {
        V top = top_of(c, s), rest = exponential(-top), norm = rest, all = zero;
        for (int64_t i = 0; i < s; i++) {
            norm += c[i] = exponential(c[i] - top);
            c_grad[i] = zero;
        }
        for (int64_t l = 0; l < job->t; l++) {
            V joint = rest;
            for (int64_t i = 0; i < s; i++) joint += c[i] * entry(exp_t, i * job->step_s + l * job->step_t, st, wide);
            joint = g[l] / joint;
            all += g[l];
            for (int64_t i = 0; i < s; i++) {
                int64_t at = i * job->step_s + l * job->step_t;
                V part = c[i] * entry(exp_t, at, st, wide) * joint;
                c_grad[i] += part;
                if (table_grad) table_grad[at] += part;
            }
        }
        all /= norm;
        for (int64_t i = 0; i < s; i++) c_grad[i] -= c[i] * all;
    }
}

INLINE void store(const Sink *sink, REAL *at, REAL value) { *at = sink->old ? *at + value : value; }

INLINE void store_lanes(const Sink *sink, REAL *at, V value) {
    if (sink->old) value += load(at);
    *(V *)at = value;
}

/* Where a gradient of `rows` numbers for each model and sample begins; a narrow one has a part for each block */
INLINE REAL *part_of(const Job *job, const Sink *sink, int64_t model, int64_t block, int64_t rows) {
    if (!sink->tensor) return 0;
    REAL *x = sink->tensor;
    return sink->wide ? x + model * rows * job->width : x + (block * job->models + model) * rows;
}

/* The gradient (s, samples) of a belief added to those of its parts */
INLINE void share_out(const Job *job, int64_t model, int64_t source, int64_t block, int64_t begin, int64_t end,
                      const REAL *belief_grad, int wide) {
    int64_t s = job->s, width = job->width, samples = wide ? end - begin : LANES;
    for (int p = 0; p < 4; p++) {
        const Sink *sink = &job->to_belief[p];
        REAL *out = part_of(job, sink, model, block, job->sources * s);
        V sign = splat(p ? 1 : -1);
        for (int64_t i = 0; i < s && out; i++) {
            int64_t row = source * s + i;
            const REAL *grad = belief_grad + i * samples;
            if (wide && sink->wide) {
                for (int64_t w = begin; w < end; w += LANES)
                    store_lanes(sink, out + row * width + w, sign * load(grad + w - begin));
            } else {
                V sum = {0};
                for (int64_t w = 0; w < samples; w += LANES) sum += load(grad + w);
                store(sink, out + row, total(sum) * sign[0]);
            }
        }
    }
}

INLINE void send_backward_row(const Job *job, const REAL *all_beliefs, int64_t model, int64_t source,
                                    int64_t block, int64_t begin, int64_t end, Room *room, int binary, int wide) {
    int64_t s = job->s, t = job->t, st = s * t, width = job->width, samples = wide ? end - begin : LANES;
    const REAL *beliefs = all_beliefs + model * job->sources * s * (job->beliefs_wide ? width : 1);
    const REAL *reverse = job->reverse.tensor, *rho = job->rho;
    const REAL *table = job->table + model * job->table_rows * st, *factor = job->factor;
    const REAL *inflow_grad = job->inflow_grad, *edges_grad = job->edges_grad;
    REAL *reverse_grad = part_of(job, &job->to_reverse, model, block, job->edges * s);
    REAL *table_grad = part_of(job, &job->to_table, model, block, job->edges * st);
    if (reverse) reverse += model * job->edges * s * (job->reverse.wide ? width : 1);
    if (inflow_grad) inflow_grad += model * job->targets * t * width;
    if (edges_grad) edges_grad += model * job->edges * t * width;
    V *table_grads = table_grad ? room->table_grad : 0;
    int32_t sources[LANES];
    for (int j = 0; j < LANES; j++) sources[j] = (int32_t)source;
    memset(room->belief_grad, 0, s * samples * sizeof(REAL));
    for (int64_t slot = job->starts[source]; slot < job->starts[source + 1]; slot += SLOTS) {
        int64_t left = job->starts[source + 1] - slot;
        int count = left < SLOTS ? (int)left : SLOTS;
        int large = read_tables(job, table, slot, count, room);
        for (int k = 0; k < count; k += wide ? 1 : LANES) {
            const int32_t *edges = job->edge_ids + slot + k, *targets = job->node_ids + slot + k;
            const REAL *tables = room->t + k * st, *exp_tables = room->exp_t + k * st;
            int live = wide ? 1 : count - k < LANES ? count - k : LANES;
            for (int64_t i = 0; i < st; i++) room->table_grad[i] = (V){0};
            if (wide) {
                V weight = splat(rho ? rho[slot + k] : 1);
                for (int64_t i = 0; i < s; i++) room->narrow_grad[i] = (V){0};
                for (int64_t w = begin; w < end; w += LANES) {
                    cavities(job, beliefs, reverse, sources, edges, 1, w, room->c, 1);
                    for (int64_t l = 0; l < t; l++) {
                        V g = {0};
                        if (inflow_grad) g += weight * load(inflow_grad + (targets[0] * t + l) * width + w);
                        if (edges_grad) g += load(edges_grad + (edges[0] * t + l) * width + w);
                        room->g[l] = g;
                    }
                    gradients(job, tables, exp_tables, large, room->c, room->g, room->c_grad, table_grads, binary, 1);
                    for (int64_t i = 0; i < s; i++) {
                        V grad = room->c_grad[i];
                        *(V *)(room->belief_grad + i * samples + w - begin) += grad;
                        if (!reverse_grad) continue;
                        if (job->to_reverse.wide)
                            store_lanes(&job->to_reverse, reverse_grad + (edges[0] * s + i) * width + w, -grad);
                        else
                            room->narrow_grad[i] -= grad;
                    }
                }
                if (reverse_grad && !job->to_reverse.wide)
                    for (int64_t i = 0; i < s; i++)
                        store(&job->to_reverse, reverse_grad + edges[0] * s + i, total(room->narrow_grad[i]));
                if (table_grad)
                    for (int64_t i = 0; i < st; i++)
                        store(&job->to_table, table_grad + edges[0] * st + i,
                                  total(room->table_grad[i]) * factor[slot + k]);
            } else {
                cavities(job, beliefs, reverse, sources, edges, live, 0, room->c, 0);
                for (int64_t l = 0; l < t; l++) {
                    V g = {0};
                    for (int j = 0; j < live; j++) {
                        if (inflow_grad) g[j] += (rho ? rho[slot + k + j] : 1) * inflow_grad[targets[j] * t + l];
                        if (edges_grad) g[j] += edges_grad[edges[j] * t + l];
                    }
                    room->g[l] = g;
                }
                gradients(job, tables, exp_tables, large, room->c, room->g, room->c_grad, table_grads, binary, 0);
                for (int64_t i = 0; i < s; i++) {
                    *(V *)(room->belief_grad + i * samples) += room->c_grad[i];
                    for (int j = 0; j < live && reverse_grad; j++)
                        store(&job->to_reverse, reverse_grad + edges[j] * s + i, -room->c_grad[i][j]);
                }
                for (int64_t i = 0; i < st && table_grad; i++)
                    for (int j = 0; j < live; j++)
                        store(&job->to_table, table_grad + edges[j] * st + i,
                                  room->table_grad[i][j] * factor[slot + k + j]);
            }
        }
    }
    share_out(job, model, source, block, begin, end, room->belief_grad, wide);
}

/* ---- edges with one number on both ends: two labels each, the common case ---- */

/* A row of samples: a narrow one is spread out in `room`, and stands still while samples go by */
typedef struct {
    const REAL *at;
    int64_t step;
} Lane;

INLINE Lane lane(const REAL *x, int wide, int64_t row, int64_t width, V *room) {
    if (x && wide) return (Lane){x + row * width, 1};
    *room = splat(x ? x[row] : 0);
    return (Lane){(const REAL *)room, 0};
}

/* Rows of edges are far from each other in memory: prefetch one that is needed a little later */
INLINE void prefetch(const REAL *x, int wide, int64_t row, int64_t width) {
    if (!x || !wide) return;
    const char *from = (const char *)(x + row * width);
    for (int64_t i = 0; i < AHEAD_BYTES && i < width * (int64_t)sizeof(REAL); i += 64) __builtin_prefetch(from + i);
}

INLINE V at(Lane x, int64_t w) { return load(x.at + w * x.step); }

INLINE V simple_message(V c, V t, V exp_t, int large, int linear) {
    if (linear) return t * c;
    if (large) return wide_range(t, c);
    V one = splat(1), down = exponential(minus_abs(c));
    I positive = (I)(c > splat(0));
    return log_ratio(pick(positive, down, one) + exp_t * pick(positive, one, down), one + down);
}

INLINE void simple_send_row(const Job *job, const REAL *all_beliefs, int64_t model, int64_t target, int64_t block,
                            int64_t begin, int64_t end, Room *room, int linear, int wide) {
    (void)block;
    int64_t width = job->width;
    const REAL *beliefs = all_beliefs + model * job->sources * (job->beliefs_wide ? width : 1);
    const REAL *reverse = job->reverse.tensor, *rho = job->rho, *table = job->table + model * job->table_rows;
    REAL *edges_out = job->edges_out, *inflow = job->inflow_out + (model * job->targets + target) * width;
    if (reverse) reverse += model * job->edges * (job->reverse.wide ? width : 1);
    if (edges_out) edges_out += model * job->edges * width;
    if (wide) memset(inflow + begin, 0, (end - begin) * sizeof(REAL));
    V sum = splat(0), narrow_belief, narrow_reverse;
    REAL c[SLOTS], weight[SLOTS];
    for (int64_t slot = job->starts[target]; slot < job->starts[target + 1]; slot += SLOTS) {
        int64_t left = job->starts[target + 1] - slot;
        int count = left < SLOTS ? (int)left : SLOTS, large = read_tables(job, table, slot, count, room);
        const int32_t *edges = job->edge_ids + slot, *nodes = job->node_ids + slot;
        if (wide) {
            for (int k = 0; k < count; k++) {
                if (k + AHEAD < count) {
                    prefetch(reverse, job->reverse.wide, edges[k + AHEAD], width);
                    prefetch(edges_out, 1, edges[k + AHEAD], width);
                }
                Lane belief = lane(beliefs, job->beliefs_wide, nodes[k], width, &narrow_belief);
                Lane back = lane(reverse, job->reverse.wide, edges[k], width, &narrow_reverse);
                V t = splat(room->t[k]), exp_t = splat(room->exp_t[k]), share = splat(rho ? rho[slot + k] : 1);
                REAL *out = edges_out ? edges_out + edges[k] * width : 0;
                for (int64_t w = begin; w < end; w += LANES) {
                    V m = simple_message(at(belief, w) - at(back, w), t, exp_t, large, linear);
                    *(V *)(inflow + w) += m * share;
                    if (out) *(V *)(out + w) = m;
                }
            }
        } else {
            int padded = (count + LANES - 1) / LANES * LANES;
            for (int k = 0; k < count; k++) c[k] = beliefs[nodes[k]], weight[k] = rho ? rho[slot + k] : 1;
            for (int k = 0; k < count && reverse; k++) c[k] -= reverse[edges[k]];
            for (int k = count; k < padded; k++) c[k] = weight[k] = 0;
            for (int k = 0; k < padded; k += LANES) {
                V m = simple_message(load(c + k), load(room->t + k), load(room->exp_t + k), large, linear);
                sum += m * load(weight + k);
                *(V *)(c + k) = m;
            }
            for (int k = 0; k < count && edges_out; k++) edges_out[edges[k]] = c[k];
        }
    }
    if (!wide) *inflow = total(sum);
}

/* The gradient of a cavity; `t_grad` gets that of the table */
INLINE V simple_gradient(V c, V t, V exp_t, V g, V *t_grad, int large, int linear) {
    if (linear) {
        *t_grad = c * g;
        return t * g;
    }
    if (large) {
        V joint = logistic(c + t), share = logistic(c);
        *t_grad = joint * g;
        return (joint - share) * g;
    }
    V one = splat(1), down = exponential(minus_abs(c)), norm = one + down;
    I positive = (I)(c > splat(0));
    V product = exp_t * pick(positive, one, down), both = pick(positive, down, one) + product;
    V scaled = g / (norm * both);
    *t_grad = product * norm * scaled;
    return down * (exp_t - one) * scaled; /* the difference of both shares */
}

INLINE void simple_send_backward_row(const Job *job, const REAL *all_beliefs, int64_t model, int64_t source,
                                     int64_t block, int64_t begin, int64_t end, Room *room, int linear, int wide) {
    int64_t width = job->width, samples = wide ? end - begin : LANES;
    const REAL *beliefs = all_beliefs + model * job->sources * (job->beliefs_wide ? width : 1);
    const REAL *reverse = job->reverse.tensor, *rho = job->rho, *factor = job->factor;
    const REAL *table = job->table + model * job->table_rows;
    const REAL *inflow_grad = job->inflow_grad, *edges_grad = job->edges_grad;
    const Sink *to_reverse = &job->to_reverse, *to_table = &job->to_table;
    REAL *reverse_grad = part_of(job, to_reverse, model, block, job->edges);
    REAL *table_grad = part_of(job, to_table, model, block, job->edges), *belief_grad = room->belief_grad;
    if (reverse) reverse += model * job->edges * (job->reverse.wide ? width : 1);
    if (inflow_grad) inflow_grad += model * job->targets * width;
    if (edges_grad) edges_grad += model * job->edges * width;
    memset(belief_grad, 0, samples * sizeof(REAL));
    V narrow_belief, narrow_reverse, nothing, t_grad;
    REAL c[SLOTS], g[SLOTS], to_t[SLOTS];
    Lane belief = lane(beliefs, job->beliefs_wide, source, width, &narrow_belief);
    for (int64_t slot = job->starts[source]; slot < job->starts[source + 1]; slot += SLOTS) {
        int64_t left = job->starts[source + 1] - slot;
        int count = left < SLOTS ? (int)left : SLOTS, large = read_tables(job, table, slot, count, room);
        const int32_t *edges = job->edge_ids + slot, *targets = job->node_ids + slot;
        if (wide) {
            for (int k = 0; k < count; k++) {
                Lane back = lane(reverse, job->reverse.wide, edges[k], width, &narrow_reverse);
                if (k + AHEAD < count) {
                    prefetch(reverse, job->reverse.wide, edges[k + AHEAD], width);
                    prefetch(edges_grad, 1, edges[k + AHEAD], width);
                    prefetch(reverse_grad, to_reverse->wide, edges[k + AHEAD], width);
                }
                Lane to_inflow = lane(inflow_grad, 1, targets[k], width, &nothing);
                Lane to_edge = lane(edges_grad, 1, edges[k], width, &nothing);
                V t = splat(room->t[k]), exp_t = splat(room->exp_t[k]), weight = splat(rho ? rho[slot + k] : 1);
                V t_sum = splat(0), reverse_sum = splat(0);
                REAL *out = reverse_grad && to_reverse->wide ? reverse_grad + edges[k] * width : 0;
                for (int64_t w = begin; w < end; w += LANES) {
                    V message_grad = weight * at(to_inflow, w) + at(to_edge, w);
                    V grad = simple_gradient(at(belief, w) - at(back, w), t, exp_t, message_grad, &t_grad, large,
                                             linear);
                    t_sum += t_grad;
                    *(V *)(belief_grad + w - begin) += grad;
                    if (out)
                        store_lanes(to_reverse, out + w, -grad);
                    else
                        reverse_sum -= grad;
                }
                if (reverse_grad && !out) store(to_reverse, reverse_grad + edges[k], total(reverse_sum));
                if (table_grad) store(to_table, table_grad + edges[k], total(t_sum) * factor[slot + k]);
            }
        } else {
            int padded = (count + LANES - 1) / LANES * LANES;
            for (int k = 0; k < count; k++) c[k] = beliefs[source], g[k] = 0;
            for (int k = 0; k < count && reverse; k++) c[k] -= reverse[edges[k]];
            for (int k = 0; k < count && inflow_grad; k++) g[k] = inflow_grad[targets[k]] * (rho ? rho[slot + k] : 1);
            for (int k = 0; k < count && edges_grad; k++) g[k] += edges_grad[edges[k]];
            for (int k = count; k < padded; k++) c[k] = g[k] = 0;
            for (int k = 0; k < padded; k += LANES) {
                V grad = simple_gradient(load(c + k), load(room->t + k), load(room->exp_t + k), load(g + k), &t_grad,
                                         large, linear);
                *(V *)belief_grad += grad;
                *(V *)(c + k) = -grad;
                *(V *)(to_t + k) = t_grad;
            }
            for (int k = 0; k < count && reverse_grad; k++) store(to_reverse, reverse_grad + edges[k], c[k]);
            for (int k = 0; k < count && table_grad; k++)
                store(to_table, table_grad + edges[k], to_t[k] * factor[slot + k]);
        }
    }
    share_out(job, model, source, block, begin, end, belief_grad, wide);
}

/* ---- messages of binary sources that nothing came back to, of many samples ---- */

/* All edges of a source then share its belief: exp(message) = zero + one * exp(t), with the shares of its labels. Where
   messages themselves are not asked for, these are multiplied up, and one logarithm is taken of several. */

#define TILE 4 /* vectors of samples that stay in registers */

/* Shares of both labels of all sources, behind their beliefs in memory */
static void find_shares(const Job *job, const REAL *beliefs, Room *room) {
    int64_t count = job->models * job->sources * job->width;
    REAL *one = job->beliefs + count, *zero = one + count;
#pragma omp parallel for num_threads(job->threads) schedule(static) if (job->threads > 1)
    for (int64_t i = 0; i < count; i += LANES) {
        V c = load(beliefs + i), down = exponential(minus_abs(c)), up = splat(1) / (splat(1) + down);
        I positive = (I)(c > splat(0));
        down *= up;
        *(V *)(one + i) = pick(positive, up, down);
        *(V *)(zero + i) = pick(positive, down, up);
    }
    room->one = one, room->zero = zero;
}

/* Adds the messages of `count` edges from `slot` on to `inflow` (t, width), for `tile` vectors of samples */
INLINE void shared_sends(const Job *job, const REAL *beliefs, const REAL *one, const REAL *zero, const Room *room,
                         int64_t slot, int count, int64_t w, REAL *inflow, REAL *edges_out, int large, int tile) {
    int64_t t = job->t, width = job->width;
    const int32_t *nodes = job->node_ids + slot, *edges = job->edge_ids + slot;
    int each = edges_out || job->rho || large, together = each ? 1 : (int)((REAL)REACH / (room->most + 1));
    for (int64_t l = 0; l < t; l++) {
        V sum[TILE];
        for (int i = 0; i < tile; i++) sum[i] = load(inflow + l * width + w + i * LANES);
        for (int from = 0; from < count; from += together) {
            int to = from + together < count ? from + together : count;
            V product[TILE];
            for (int i = 0; i < tile; i++) product[i] = splat(1);
            for (int k = from; k < to; k++) {
                int64_t row = nodes[k] * width + w;
                V exp_t = splat(room->exp_t[k * t + l]);
                for (int i = 0; i < tile; i++)
                    product[i] *= load(zero + row + i * LANES) + load(one + row + i * LANES) * exp_t;
            }
            for (int i = 0; i < tile; i++) {
                V m = log_ratio(product[i], splat(1));
                if (large) m = wide_range(splat(room->t[from * t + l]), load(beliefs + nodes[from] * width + w + i * LANES));
                if (edges_out) *(V *)(edges_out + (edges[from] * t + l) * width + w + i * LANES) = m;
                sum[i] += m * (job->rho ? job->rho[slot + from] : 1);
            }
        }
        for (int i = 0; i < tile; i++) *(V *)(inflow + l * width + w + i * LANES) = sum[i];
    }
}

static void shared_send_row(const Job *job, const REAL *beliefs, int64_t model, int64_t target, int64_t block,
                            int64_t begin, int64_t end, Room *room) {
    (void)block;
    int64_t t = job->t, width = job->width, first = model * job->sources * width;
    const REAL *table = job->table + model * job->table_rows * t, *one = room->one + first, *zero = room->zero + first;
    REAL *edges_out = job->edges_out, *inflow = job->inflow_out + (model * job->targets + target) * t * width;
    if (edges_out) edges_out += model * job->edges * t * width;
    for (int64_t l = 0; l < t; l++) memset(inflow + l * width + begin, 0, (end - begin) * sizeof(REAL));
    for (int64_t slot = job->starts[target]; slot < job->starts[target + 1]; slot += SLOTS) {
        int64_t left = job->starts[target + 1] - slot, w = begin;
        int count = left < SLOTS ? (int)left : SLOTS, large = read_tables(job, table, slot, count, room);
#define SENDS(tile)                                                                                                    \
    for (; w + tile * LANES <= end; w += tile * LANES)                                                                 \
        shared_sends(job, beliefs + first, one, zero, room, slot, count, w, inflow, edges_out, large, tile);
        SENDS(TILE) SENDS(3) SENDS(2) SENDS(1)
    }
}

/* Gradients of the sources' beliefs, but for the product of both shares, to `belief_grad`, and of tables */
INLINE void shared_gradients(const Job *job, const REAL *beliefs, const REAL *one, const REAL *zero, Room *room,
                             int64_t slot, int count, int64_t w, const REAL *inflow_grad, const REAL *edges_grad,
                             REAL *belief_grad, int large, int tile) {
    int64_t t = job->t, width = job->width;
    const int32_t *targets = job->node_ids + slot, *edges = job->edge_ids + slot;
    V a[TILE], b[TILE], sum[TILE];
    for (int i = 0; i < tile; i++) {
        a[i] = load(zero + w + i * LANES), b[i] = load(one + w + i * LANES);
        sum[i] = load(belief_grad + i * LANES);
    }
    for (int k = 0; k < count; k++) {
        REAL weight = job->rho ? job->rho[slot + k] : 1;
        for (int64_t l = 0; l < t; l++) {
            V exp_t = splat(room->exp_t[k * t + l]), over = exp_t - splat(1), t_grad = splat(0);
            for (int i = 0; i < tile; i++) {
                V g = splat(0);
                if (inflow_grad) g = weight * load(inflow_grad + (targets[k] * t + l) * width + w + i * LANES);
                if (edges_grad) g += load(edges_grad + (edges[k] * t + l) * width + w + i * LANES);
                V scaled = g / (a[i] + b[i] * exp_t);
                if (large) {
                    V c = load(beliefs + w + i * LANES), joint = logistic(c + splat(room->t[k * t + l]));
                    t_grad += joint * g;
                    sum[i] += (joint - b[i]) * g;
                } else {
                    t_grad += b[i] * scaled;
                    sum[i] += a[i] * b[i] * over * scaled;
                }
            }
            if (!large) t_grad *= exp_t;
            room->table_grad[k * t + l] += t_grad;
        }
    }
    for (int i = 0; i < tile; i++) *(V *)(belief_grad + i * LANES) = sum[i];
}

static void shared_send_backward_row(const Job *job, const REAL *beliefs, int64_t model, int64_t source, int64_t block,
                                     int64_t begin, int64_t end, Room *room) {
    int64_t t = job->t, width = job->width, first = (model * job->sources + source) * width;
    const REAL *table = job->table + model * job->table_rows * t, *one = room->one + first, *zero = room->zero + first;
    const REAL *inflow_grad = job->inflow_grad, *edges_grad = job->edges_grad, *factor = job->factor;
    REAL *table_grad = part_of(job, &job->to_table, model, block, job->edges * t), *belief_grad = room->belief_grad;
    if (inflow_grad) inflow_grad += model * job->targets * t * width;
    if (edges_grad) edges_grad += model * job->edges * t * width;
    memset(belief_grad, 0, (end - begin) * sizeof(REAL));
    for (int64_t slot = job->starts[source]; slot < job->starts[source + 1]; slot += SLOTS) {
        int64_t left = job->starts[source + 1] - slot, w = begin;
        int count = left < SLOTS ? (int)left : SLOTS, large = read_tables(job, table, slot, count, room);
        memset(room->table_grad, 0, count * t * sizeof(V));
#define GRADIENTS(tile)                                                                                                \
    for (; w + tile * LANES <= end; w += tile * LANES)                                                                 \
        shared_gradients(job, beliefs + first, one, zero, room, slot, count, w, inflow_grad, edges_grad,               \
                         belief_grad + w - begin, large, tile);
        GRADIENTS(TILE) GRADIENTS(3) GRADIENTS(2) GRADIENTS(1)
        for (int k = 0; k < count && table_grad; k++)
            for (int64_t l = 0; l < t; l++)
                store(&job->to_table, table_grad + job->edge_ids[slot + k] * t + l,
                      total(room->table_grad[k * t + l]) * factor[slot + k]);
    }
    share_out(job, model, source, block, begin, end, belief_grad, 1);
}

/* ---- rows shared out among threads ---- */

#ifdef __SSE__ /* numbers too small to be normal become 0: computing with them is slow */
#define FLUSH unsigned control = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(control | 0x8040)
#define UNFLUSH __builtin_ia32_ldmxcsr(control)
#else
#define FLUSH
#define UNFLUSH
#endif

typedef void Row(const Job *, const REAL *beliefs, int64_t model, int64_t node, int64_t block, int64_t begin,
                 int64_t end, Room *room);

/* flag: for `simple` rows whether they are linear, for others whether they are those of sum-product with s = 1 */
#define ROW(name, flag, wide)                                                                                          \
    static void name##_##flag##wide(const Job *job, const REAL *beliefs, int64_t model, int64_t node, int64_t block,   \
                                    int64_t begin, int64_t end, Room *room) {                                          \
        name##_row(job, beliefs, model, node, block, begin, end, room, flag, wide);                                    \
    }
#define ROWS(name)                                                                                                     \
    ROW(name, 0, 0) ROW(name, 0, 1) ROW(name, 1, 0) ROW(name, 1, 1)                                                    \
    static Row *const name##_rows[2][2] = {{name##_00, name##_01}, {name##_10, name##_11}};
ROWS(send)
ROWS(simple_send)
ROWS(send_backward)
ROWS(simple_send_backward)

/* Returns whether an allocation failed */
static int each_row(const Job *job, int64_t nodes, Row *const rows[2][2], Row *const simple_rows[2][2], Row *shared) {
    int failed = 0;
    int64_t units = job->models * nodes * job->blocks, share = units / (job->threads * 8) + 1;
    Row *row = rows[job->mode == SUM && job->s == 1][job->width > 1];
    if (job->s == 1 && job->t == 1 && job->mode != MAX) row = simple_rows[job->mode == LINEAR][job->width > 1];
    const REAL *beliefs = add_up(job);
    Room all = {0};
    if (job->mode == SUM && job->s == 1 && job->width > 1 && job->beliefs_wide && !job->reverse.tensor)
        row = shared, find_shares(job, beliefs, &all);
#pragma omp parallel num_threads(job->threads) if (job->threads > 1)
    {
        FLUSH;
        Room room = all;
        void *memory = make_room(job, &room);
        if (!memory) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(dynamic, share)
        for (int64_t unit = 0; unit < units; unit++) {
            int64_t block = unit % job->blocks, node = unit / job->blocks % nodes, model = unit / job->blocks / nodes;
            int64_t begin = block * job->samples, end = begin + job->samples;
            if (memory) row(job, beliefs, model, node, block, begin, end < job->width ? end : job->width, &room);
        }
        free(memory);
        UNFLUSH;
    }
    return failed;
}

int send(const Job *job) { return each_row(job, job->targets, send_rows, simple_send_rows, shared_send_row); }

int send_backward(const Job *job) {
    return each_row(job, job->sources, send_backward_rows, simple_send_backward_rows, shared_send_backward_row);
}
