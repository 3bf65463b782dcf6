/* schedule.c - the learning rate of a step. */
#include <math.h>

#include "base/status.h"

static const double step_factor = 0.316; /* as in the paper: applied twice, it is a tenth */
static const double cosine_floor = 0.1;  /* of the highest rate */
static const double pi = 3.14159265358979323846;

static double step_share(int64_t step, int64_t n_steps)
{
    /* Whole numbers, so that a boundary does not depend on how 0.8 is rounded. */
    double share = 1;
    if (step >= n_steps - n_steps / 5) share *= step_factor;
    if (step >= n_steps - n_steps / 10) share *= step_factor;
    return share;
}

static double cosine_share(int64_t step, int64_t first, int64_t n_steps)
{
    if (step >= n_steps) return cosine_floor;
    double done = (double)(step - first) / (double)(n_steps - first);
    return cosine_floor + (1 - cosine_floor) * 0.5 * (1 + cos(pi * done));
}

double dsmoe_schedule_lr(const dsmoe_schedule *schedule, int64_t step)
{
    if (step < schedule->n_warmup)
        return schedule->lr * (double)(step + 1) / (double)schedule->n_warmup;
    switch (schedule->kind) {
    case DSMOE_SCHEDULE_STEP: return schedule->lr * step_share(step, schedule->n_steps);
    case DSMOE_SCHEDULE_COSINE:
        return schedule->lr * cosine_share(step, schedule->n_warmup, schedule->n_steps);
    case DSMOE_SCHEDULE_CONSTANT: break;
    }
    return schedule->lr;
}
