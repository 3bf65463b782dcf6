/* made_checkpoint.c - a run's folder with checkpoints of a small trainer. */
#include "made_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "scratch.h"

char run[300], synced_link[256];

int __wrap_fsync(int descriptor);
int __wrap_fsync(int descriptor)
{
    struct stat synced, folder;
    char link[sizeof synced_link] = "";
    if (fstat(descriptor, &synced) == 0 && stat(run, &folder) == 0 &&
        synced.st_ino == folder.st_ino && synced.st_dev == folder.st_dev &&
        readlink(tiny_path(run, "latest"), link, sizeof link - 1) > 0)
        memcpy(synced_link, link, sizeof link);
    return 0;
}

int make_run(void **state)
{
    if (make_directory(state)) return -1;
    snprintf(run, sizeof run, "%.250s/run", directory);
    return 0;
}

int remove_run(void **state)
{
    tiny_remove(run);
    return remove_directory(state);
}

dsmoe_trainer *make_trainer(uint64_t seed)
{
    dsmoe_config config = tiny_config();
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    options.n_sequences = 1;
    options.sequence_length = 4;
    options.n_threads = 1;
    dsmoe_trainer *t;
    dsmoe_error error;
    if (dsmoe_trainer_create(&config, &options, &t, &error)) fail_msg("%s", error.message);
    dsmoe_trainer_init(t, seed);
    for (size_t i = 0; i < t->n_parameters; i++) {
        const parameter *p = &t->parameters[i];
        rng_normal(t->first_moment + p->begin, p->n, seed, 2 * i, 0, 1e-3f);
        rng_uniform(t->second_moment + p->begin, p->n, seed, 2 * i + 1, 0, 0, 1e-6f);
    }
    t->n_updates = 1;
    return t;
}

checkpoint_state make_state(int64_t step)
{
    return (checkpoint_state){.step = step,
                              .n_skipped = 1,
                              .sequences = 3 * step,
                              .data_hash = 0xfedcba9876543210u,
                              .loss = 0.1 + 0.2,
                              .best_loss = nextafter(2, 3),
                              .best_step = step - 1,
                              .lowest_loss = nextafter(1, 2),
                              .n_worse = 3,
                              .evaluated_step = step - 2,
                              .is_due = 1,
                              .logged_loss = nextafter(3, 4),
                              .interval_n = 1,
                              .interval_loss = nextafter(4, 5),
                              .interval_aux_loss = nextafter(5, 6),
                              .interval_device_loss = nextafter(6, 7),
                              .kernels = "some"};
}

const char *write_as(dsmoe_trainer *t, int64_t step, checkpoint_options options)
{
    static char written[CHECKPOINT_PATH];
    checkpoint_state state = make_state(step);
    dsmoe_error error;
    if (checkpoint_write(run, t, &options, &state, written, &error)) fail_msg("%s", error.message);
    return written;
}

const char *write_step(dsmoe_trainer *t, int64_t step)
{
    return write_as(t, step, (checkpoint_options){0});
}

bool has_step(int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%08" PRId64, step);
    return tiny_exists(tiny_path(run, name));
}

void prune(int64_t keep, int64_t best_step)
{
    dsmoe_error error;
    if (checkpoint_prune(run, keep, best_step, &error)) fail_msg("%s", error.message);
}

void assert_link(const char *name, const char *target)
{
    char found[256] = "";
    if (readlink(tiny_path(run, name), found, sizeof found - 1) < 0 || strcmp(found, target))
        fail_msg("%s leads to '%s', not '%s'", name, found, target);
}
