// Messages and their gradients over dense edges: all rules, one and several labels, small and large energies, one sample
// and several.
#include <native.c>
#include "numbers.h"

enum { MODELS = 2, SOURCES = 5, TARGETS = 11, EDGES = SOURCES * TARGETS, MOST = 3, WIDEST = 24 };

// Lists edges by target or by source.
static void list(Job *job, int by_target) {
    static int32_t edge_ids[EDGES], node_ids[EDGES], rows[EDGES], starts[TARGETS + 1];
    const int nodes = by_target ? TARGETS : SOURCES, others = EDGES / nodes;
    for (int n = 0; n <= nodes; n++) starts[n] = n * others;
    for (int n = 0; n < nodes; n++)
        for (int o = 0; o < others; o++) {
            const int edge = by_target ? o * TARGETS + n : n * TARGETS + o, i = n * others + o;
            edge_ids[i] = rows[i] = edge, node_ids[i] = o;
        }
    job->edge_ids = edge_ids, job->node_ids = node_ids, job->rows = rows, job->starts = starts;
}

static void run(int mode, int s, int t, int width, double scale) {
    static REAL table[MODELS * EDGES * MOST * MOST], factor[EDGES], rho[EDGES];
    static REAL belief[MODELS * SOURCES * MOST * WIDEST], reverse[MODELS * EDGES * MOST * WIDEST];
    static REAL beliefs[LENGTH(belief)], edges_out[LENGTH(reverse)], inflow[MODELS * TARGETS * MOST * WIDEST];
    static REAL belief_grad[LENGTH(belief)], reverse_grad[LENGTH(reverse)], table_grad[LENGTH(table)];
    FILL(table, -scale, scale);
    FILL(factor, 0.5, 1.5);
    FILL(rho, 0.5, 1);
    FILL(belief, -3, 3);
    FILL(reverse, -1, 1);
    memset(edges_out, 0, sizeof edges_out);
    memset(inflow, 0, sizeof inflow);
    memset(belief_grad, 0, sizeof belief_grad);
    memset(reverse_grad, 0, sizeof reverse_grad);
    memset(table_grad, 0, sizeof table_grad);
    Job job = {.mode = mode, .models = MODELS, .sources = SOURCES, .targets = TARGETS, .edges = EDGES};
    job.table_rows = EDGES, job.s = s, job.t = t, job.step_s = t, job.step_t = 1;
    job.width = width, job.samples = 512, job.blocks = 1, job.threads = 1;
    job.table = table, job.factor = factor, job.rho = rho;
    job.belief[1] = (Part){belief, 1}, job.reverse = (Part){reverse, 1};
    job.beliefs = beliefs, job.beliefs_wide = 1, job.edges_out = edges_out, job.inflow_out = inflow;
    list(&job, 1);
    if (send(&job)) return;
    SHOW(edges_out);
    SHOW(inflow);
    job.edges_out = job.inflow_out = 0, job.edges_grad = edges_out, job.inflow_grad = inflow;
    job.to_belief[1] = (Sink){belief_grad, 1, 0}, job.to_reverse = (Sink){reverse_grad, 1, 0};
    job.to_table = (Sink){table_grad, 0, 0};
    list(&job, 0);
    if (send_backward(&job)) return;
    SHOW(belief_grad);
    SHOW(reverse_grad);
    SHOW(table_grad);
}

int main(void) {
    for (int mode = SUM; mode <= LINEAR; mode++)
        for (int width = 1; width <= WIDEST; width += WIDEST - 1) {
            run(mode, 1, 1, width, 2);
            run(mode, 2, 3, width, 2);
            run(mode, 1, 2, width, 1.25 * LARGE);
        }
    return 0;
}
