// A chain with a loop: marginals of variables and of pairs, expected counts, labellings.
#include <buckets.c>
#include "numbers.h"

enum { VARIABLES = 7, FACTORS = VARIABLES, ROWS = 30, STATES = 3, PAIR = STATES * STATES, ASKED = VARIABLES + 1 };
enum { WIDTH = VARIABLES * STATES + PAIR, SOFT = STATES };

static int solve(int maximise) {
    static int32_t labels[VARIABLES], scopes[2 * FACTORS], child[FACTORS + 1], asked_scopes[ASKED + 1];
    static int64_t scope_at[FACTORS + 1], table_at[FACTORS + 1], asked_at[ASKED + 1], out_at[ASKED + 1];
    static int64_t soft_at[VARIABLES], order[ROWS];
    static double tables[FACTORS * PAIR], total[FACTORS + 1], least[FACTORS + 1], soft[ROWS * SOFT];
    static double out[ROWS * WIDTH], log_z[ROWS], entries[ROWS], counts[LENGTH(tables)], weights[ROWS];
    static int32_t codes[ROWS * VARIABLES], status[ROWS], best[LENGTH(codes)];
    FILL(tables, 0.05, 1);
    FILL(soft, 0.1, 1);
    FILL(weights, 0.5, 1.5);
    for (int v = 0; v < VARIABLES; v++) {
        const int next = (v + 1) % VARIABLES;
        labels[v] = STATES, child[v] = -1, soft_at[v] = v ? -1 : 0, least[v] = -4;
        scopes[2 * v] = v < next ? v : next, scopes[2 * v + 1] = v < next ? next : v;
        asked_scopes[v] = v;
    }
    for (int f = 0; f <= FACTORS; f++) scope_at[f] = 2 * f, table_at[f] = PAIR * f;
    for (int a = 0; a < ASKED; a++) asked_at[a] = a, out_at[a] = a * STATES;
    asked_scopes[ASKED - 1] = 2, asked_scopes[ASKED] = 5, asked_at[ASKED] = ASKED + 1, out_at[ASKED] = WIDTH;
    child[FACTORS] = -1;
    for (int i = 0; i < ROWS; i++) {
        order[i] = i;
        for (int v = 0; v < VARIABLES; v++)
            codes[i * VARIABLES + v] = uniform() < 0.6 ? -1 : (int)(uniform() * STATES);
    }
    memset(counts, 0, sizeof counts);
    memset(out, 0, sizeof out);
    const Job job = {VARIABLES, FACTORS, ROWS, ASKED, 1, 1, WIDTH, SOFT, 1 << 20, maximise, 0,
                     labels, scope_at, scopes, table_at, tables, child, total, least, asked_at, asked_scopes, out_at,
                     soft_at, soft, codes, order, weights, out, log_z, entries, maximise ? NULL : counts, status,
                     maximise ? best : NULL};
    if (solve_rows(&job)) return 1;
    SHOW(status);
    SHOW(log_z);
    if (maximise) {
        SHOW(best);
    } else {
        SHOW(out);
        SHOW(counts);
    }
    return 0;
}

int main(void) { return solve(0) || solve(1); }
