/* run_witness.c - training runs that tests watch. */
#include "run_witness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "scratch.h"

/* The linker puts this in place of fsync. These tests do not see whether a checkpoint reaches the disk,
 * and waiting for that would take most of their time. */
int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor)
{
    (void)descriptor;
    return 0;
}

static void see(void *context, const dsmoe_run_event *e)
{
    witness *w = context;
    switch (e->kind) {
    case DSMOE_RUN_STEP:
        assert_int_equal(e->step, e->first_step + w->n_steps + 1);
        assert_true(w->n_starts == 1 && e->tokens_per_s > 0 && e->seconds_left >= 0);
        if (w->n_steps < 16) w->losses[w->n_steps] = e->loss;
        if (w->n_steps++ == 0) w->first_loss = e->loss;
        w->last_loss = e->loss;
        w->last_lr = e->lr;
        w->last_step = e->step;
        w->n_skipped = e->n_skipped;
        if (w->stop_at && e->step >= w->stop_at) w->wants_end = true;
        break;
    case DSMOE_RUN_START:
        w->n_starts++;
        w->first_step = e->first_step;
        w->vocab_size = e->config->vocab_size;
        w->aux_loss_alpha = e->config->aux_loss_alpha;
        snprintf(w->changes, sizeof w->changes, "%s", e->text ? e->text : "");
        w->max_position_embeddings = e->config->max_position_embeddings;
        assert_true(e->memory->weights > 0 && e->parameters > 0 && e->data->n_train > 0);
        if (w->stop_at_start) w->wants_end = true;
        break;
    case DSMOE_RUN_EVAL:
        w->n_evals++;
        assert_true(e->held_out_loss > 0);
        break;
    case DSMOE_RUN_SAMPLE:
        w->n_samples++;
        assert_non_null(e->text);
        break;
    case DSMOE_RUN_CHECKPOINT:
        w->n_checkpoints++;
        assert_true(tiny_exists(e->path));
        break;
    case DSMOE_RUN_SKIP:
        w->n_skips++;
        snprintf(w->skip, sizeof w->skip, "%s", e->text);
        break;
    case DSMOE_RUN_MESSAGE:
        w->n_messages++;
        snprintf(w->message, sizeof w->message, "%s", e->text);
        break;
    case DSMOE_RUN_PROGRESS:
        assert_true(e->what && e->done <= e->total);
        if (w->stop_measuring_at == e->step && strstr(e->what, "held-out")) w->wants_end = true;
        break;
    case DSMOE_RUN_SEQUENCE: break;
    }
}

static bool wants_end(void *context)
{
    const witness *w = context;
    return w->stop_at_once || w->wants_end;
}

dsmoe_status watch_run(const dsmoe_run_settings *s, dsmoe_run_options options, witness *w,
                       dsmoe_run_result *result, dsmoe_error *error)
{
    witness own = {0};
    options.event = see;
    options.stop = wants_end;
    options.context = w ? w : &own;
    return dsmoe_run(s, &options, result, error);
}

dsmoe_run_result must_run(const dsmoe_run_settings *s, dsmoe_run_options options, witness *w)
{
    dsmoe_run_result result;
    dsmoe_error error;
    if (watch_run(s, options, w, &result, &error)) fail_msg("%s", error.message);
    return result;
}

dsmoe_run_result must_resume(const char *folder, int64_t stop_after, int n_threads, witness *w)
{
    return must_run(
        NULL,
        (dsmoe_run_options){.resume = folder, .stop_after = stop_after, .n_threads = n_threads}, w);
}

void must_fail(const dsmoe_run_settings *s, dsmoe_run_options options, dsmoe_status status,
               const char *words)
{
    dsmoe_run_result result;
    dsmoe_error error = {0};
    assert_int_equal(watch_run(s, options, NULL, &result, &error), status);
    if (!strstr(error.message, words)) fail_msg("'%s' does not say '%s'", error.message, words);
    assert_null(strchr(error.message, '\n'));
}

const char *run_folder(const char *name) { return tiny_path(directory, name); }

void copy_path(char out[TINY_PATH], const char *folder, const char *name)
{
    snprintf(out, TINY_PATH, "%s", tiny_path(folder, name));
}

void assert_same_end(const char *a, const char *b)
{
    char x[TINY_PATH], y[TINY_PATH];
    copy_path(x, run_folder(a), "latest");
    copy_path(y, run_folder(b), "latest");
    tiny_assert_same(tiny_path(x, "model.safetensors"), tiny_path(y, "model.safetensors"));
    tiny_assert_same(tiny_path(x, "training.safetensors"), tiny_path(y, "training.safetensors"));
    tiny_assert_same(tiny_path(x, "config.json"), tiny_path(y, "config.json"));
}

int make_straight_run(void **state)
{
    if (make_directory(state)) return -1;
    tiny_write_text(directory);
    tiny_write_config(directory);
    dsmoe_run_settings s = tiny_settings(directory, "straight");
    must_run(&s, (dsmoe_run_options){.n_threads = 1}, NULL);
    return 0;
}

int remove_straight_run(void **state)
{
    tiny_remove(run_folder("straight"));
    tiny_remove(run_folder("text"));
    tiny_remove(run_folder("config.json"));
    return remove_directory(state);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

int run_rank(const dsmoe_peers *peers, void *crew)
{
    const run_crew *c = crew;
    dsmoe_run_options options = {.peers = peers, .parallel = c->parallel, .n_threads = 1};
    dsmoe_error error = {0};
    if (dsmoe_run(&c->settings, &options, NULL, &error) == DSMOE_OK) return 0;
    fprintf(stderr, "rank %d: %s\n", peers->rank, error.message);
    return 1;
}
