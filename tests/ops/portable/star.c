// Some steps of training two members, and what they believe then.
#include <star.c>
#include "numbers.h"

enum { MEMBERS = 2, COLUMNS = 3, SLOTS = 9, HIDDEN = 21, CLASSES = 4, ROWS = 40, STEPS = 5, BATCH = 70 };
enum { SIZE = SLOTS * (HIDDEN + 1) + HIDDEN + HIDDEN * CLASSES + CLASSES };

int main(void) {
    static const int32_t first[] = {0, 2, 6, SLOTS};
    static const float step[] = {0, 0.5f, 0};
    static int32_t slot[ROWS * COLUMNS], label[ROWS];
    static float share[ROWS * COLUMNS], weight[ROWS], parameters[MEMBERS * SIZE], mean[MEMBERS * SIZE];
    static float square[MEMBERS * SIZE], loss[STEPS * MEMBERS], beliefs[MEMBERS * BATCH * CLASSES];
    static int64_t index[STEPS * MEMBERS * BATCH];
    static uint16_t shown[LENGTH(index)];
    static uint8_t noise[LENGTH(index) * COLUMNS];
    static const float rate[] = {0.05f, 0.04f, 0.03f, 0.02f, 0.01f}, penalty[] = {0, 0.1f};
    for (int i = 0; i < ROWS; i++) {
        for (int c = 0; c < COLUMNS; c++) {
            const int labels = first[c + 1] - first[c];
            slot[i * COLUMNS + c] = uniform() < 0.2 ? -1 : first[c] + (int)(uniform() * (labels - (step[c] != 0)));
            share[i * COLUMNS + c] = step[c] != 0 ? (float)uniform() : 0;
        }
        label[i] = (int)(uniform() * CLASSES);
    }
    FILL(weight, 0.5f, 1.5f);
    FILL(parameters, -2, 2);
    FILL(index, 0, ROWS - 0.001);
    FILL(shown, 0, 256);
    FILL(noise, 0, 255);
    const Star star = {MEMBERS, COLUMNS, SLOTS, HIDDEN, CLASSES, 1, first, step, slot, share, label, weight, parameters};
    const Course course = {STEPS, BATCH, 0, index, shown, noise, rate, penalty, mean, square, loss, 0.9f, 0.999f, 1e-8f};
    if (train(&star, &course) || star_log_probs(&star, &course, beliefs)) return 1;
    SHOW(loss);
    SHOW(beliefs);
    return 0;
}
