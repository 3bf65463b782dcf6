/* run_limits.c - what ends a run before its last step: a number of steps, time, or a held-out loss that no
 * longer improves.
 *
 * Patience counts the evaluations that `eval_every` asks for, whose steps do not depend on when a run is
 * stopped. The count is part of a checkpoint. A checkpoint is evaluated after it was written, so its own
 * evaluation is counted when the run continues from there. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "train/run.h"

bool run_is_enough(const run *r)
{
    return r->options.stop_after > 0 && r->state.step >= r->options.stop_after;
}

bool run_is_out_of_time(run *r)
{
    double limit = r->options.time_limit;
    r->is_late = limit > 0 && clock_seconds() - r->started >= limit;
    return r->is_late;
}

bool run_is_out_of_patience(const run *r)
{
    return r->settings.patience > 0 && r->state.n_worse >= r->settings.patience;
}

bool run_awaits_evaluation(const run *r)
{
    const dsmoe_run_settings *s = &r->settings;
    return r->state.step % s->eval_every == 0 && r->state.evaluated_step < r->state.step;
}

void run_count_evaluation(run *r)
{
    checkpoint_state *s = &r->state;
    int64_t every = r->settings.eval_every;
    if (every == 0 || s->step % every != 0 || s->evaluated_step >= s->step) return;
    s->evaluated_step = s->step;
    bool better = r->held_out_loss < s->lowest_loss || isnan(s->lowest_loss);
    if (better && !isnan(r->held_out_loss)) {
        s->lowest_loss = r->held_out_loss;
        s->n_worse = 0;
    } else {
        s->n_worse++;
    }
}

void run_describe_end(const run *r, char *text, size_t size)
{
    const long long step = r->state.step, n_steps = r->settings.steps;
    if (step < n_steps && run_is_out_of_patience(r))
        snprintf(text, size,
                 "%s: ended after step %lld, because the held-out loss did not improve in %lld "
                 "evaluations",
                 r->folder, step, (long long)r->state.n_worse);
    else
        snprintf(text, size, "%s: %lld of %lld steps of this run are done", r->folder, step,
                 n_steps);
}

dsmoe_run_end run_end(const run *r)
{
    if (r->settings.steps > 0 && r->state.step >= r->settings.steps) return DSMOE_RUN_FINISHED;
    if (run_is_out_of_patience(r)) return DSMOE_RUN_OUT_OF_PATIENCE;
    return r->is_late && !r->stopped ? DSMOE_RUN_OUT_OF_TIME : DSMOE_RUN_STOPPED;
}
