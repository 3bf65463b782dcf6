/* train.c - `dsmoe train`: trains a model on text, or resumes a run. */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/model_sizes.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/train_options.h"
#include "cli/train_view.h"

/* ---- the folder -------------------------------------------------------------------------------- */

/* The library checks a folder that holds a run, or one that was interrupted before its first step. */
static int check_out(const dsmoe_run_settings *s)
{
    static const char *const signs[] = {"settings.json", ".preparing"};
    for (int i = 0; i < 2; i++) {
        char path[DSMOE_PATH + 32];
        snprintf(path, sizeof path, "%s/%s", s->out, signs[i]);
        if (access(path, F_OK) == 0) return CLI_OK;
    }
    enum { N_INPUTS = 3 + 2 * DSMOE_MAX_DATA };
    const char *inputs[N_INPUTS] = {s->config, s->tokenizer, s->init};
    for (int i = 0; i < DSMOE_MAX_DATA; i++) {
        inputs[3 + i] = s->data[i];
        inputs[3 + DSMOE_MAX_DATA + i] = s->eval_data[i];
    }
    return output_check_folder_with("train", s->out, inputs, N_INPUTS);
}

/* ---- the model --------------------------------------------------------------------------------- */

/* The configuration that a new run begins with. The run reports errors in the file. */
static dsmoe_status read_config(const dsmoe_run_settings *s, dsmoe_config *config)
{
    const char *source = *s->init ? s->init : s->config;
    if (!*source) return dsmoe_config_preset(*s->preset ? s->preset : "tiny", config, NULL);
    char path[DSMOE_PATH + 32];
    struct stat info;
    bool is_folder = stat(source, &info) == 0 && S_ISDIR(info.st_mode);
    snprintf(path, sizeof path, "%s%s", source, is_folder ? "/config.json" : "");
    return dsmoe_config_read(path, config, NULL);
}

/* Sizes that make no model are wrong usage, reported before anything is written. */
static int check_model(const dsmoe_run_settings *s)
{
    dsmoe_config config;
    if (read_config(s, &config) != DSMOE_OK) return CLI_OK;
    if (!*s->init && model_sizes_apply("train", &s->model, &config) >= 0) return CLI_USAGE;
    if (s->device_groups == 0 || config.n_routed_experts % s->device_groups == 0) return CLI_OK;
    return cli_usage(
        "train", "--device-groups %" PRId64 " does not divide %" PRId64 " routed experts evenly",
        s->device_groups, config.n_routed_experts);
}

/* Settings from a file may be made for another machine, so the memory that they need is printed before
 * anything is read. With --init, the run itself prints it. */
static void tell_memory(const char *file, const dsmoe_run_settings *s)
{
    dsmoe_config config;
    dsmoe_trainer_options options = dsmoe_trainer_options_default();
    char needed[CLI_BYTES], left[CLI_BYTES];
    if (!file || *s->init || read_config(s, &config) != DSMOE_OK) return;
    if (model_sizes_apply("train", &s->model, &config) >= 0) return;
    if (s->vocab_size > 0 && !*s->tokenizer) config.vocab_size = s->vocab_size;
    options.n_sequences = s->batch;
    options.sequence_length = s->seq;
    options.recompute = s->recompute;
    dsmoe_trainer_memory m = dsmoe_trainer_memory_size(&config, &options);
    double sum = (double)m.weights + (double)m.gradients + (double)m.moments +
                 (double)m.activations + (double)m.workspace;
    if (!(sum > 0)) return;
    uint64_t available = memory_available();
    cli_format_bytes((double)available, left);
    cli_note("train", "%s: training takes %s of memory%s%s%s", file, cli_format_bytes(sum, needed),
             available < UINT64_MAX ? "; " : "", available < UINT64_MAX ? left : "",
             available < UINT64_MAX ? " is available" : "");
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool wants_end(void *context)
{
    (void)context;
    return cli_interrupted();
}

/* The best model, or the last one if there is no `best`: links may be impossible, or nothing was measured. */
static void find_model(const char *folder, const dsmoe_run_result *result, char *path, size_t size)
{
    snprintf(path, size, "%s/best", folder);
    if (access(path, R_OK) != 0) snprintf(path, size, "%s", result->checkpoint);
}

/* A run on token shards may have no tokenizer. */
static bool has_tokenizer(const char *model)
{
    char path[DSMOE_PATH + 128];
    snprintf(path, sizeof path, "%s/tokenizer.json", model);
    return access(path, F_OK) == 0;
}

static void print_resume(const char *folder, const char *options)
{
    printf("resume: dsmoe train --resume ");
    cli_print_word(stdout, folder);
    printf("%s\n", options);
}

/* Prints how to try the result: a model runs, an adapter runs with its base, experts are merged into
 * theirs. */
static void print_trial(const char *model, const dsmoe_run_settings *s)
{
    bool is_model = !strcmp(s->train, "all"), is_merged = !strcmp(s->train, "experts");
    printf("try:    dsmoe %s ", is_merged ? "merge" : "generate -m");
    if (!is_model) {
        cli_print_word(stdout, s->init);
        printf(is_merged ? " " : " --lora ");
    }
    cli_print_word(stdout, model);
    if (is_merged)
        printf(" tuned.gguf\n");
    else
        printf(" -n 64 %s\n",
               has_tokenizer(model) ? "-p \"Once upon a time\"" : "--ids -p \"1 2 3\"");
}

static void print_result(const char *folder, const dsmoe_run_result *r, const dsmoe_run_settings *s)
{
    char model[DSMOE_PATH + 64];
    find_model(folder, r, model, sizeof model);
    if (!r->finished)
        printf("ended after step %" PRId64 " of %" PRId64
               ": the held-out loss did not improve in %" PRId64 " evaluations\n",
               r->step, s->steps, s->patience);
    printf("done:   %" PRId64 " steps, loss %.4f", r->step, r->loss);
    if (!isnan(r->held_out_loss)) printf(", held-out loss %.4f", r->held_out_loss);
    printf("\nmodel:  %s\nreport: %s\n", model, r->report);
    print_trial(model, s);
    if (!r->finished) print_resume(folder, " --patience 0");
}

static void print_stop(const char *folder, const dsmoe_run_result *r, int64_t n_steps)
{
    char settings[DSMOE_PATH + 32];
    snprintf(settings, sizeof settings, "%s/settings.json", folder);
    if (r->step > 0)
        printf("stopped after step %" PRId64 " of %" PRId64 "%s, saved as %s\n", r->step, n_steps,
               r->end == DSMOE_RUN_OUT_OF_TIME ? ", because the time is up" : "", r->checkpoint);
    else
        printf("stopped before the first step\n");
    if (access(settings, F_OK) == 0) {
        print_resume(folder, "");
    } else {
        printf("again:  the same command starts from the beginning\n");
    }
}

int command_train(int argc, char **argv)
{
    static train_options c; /* its settings are large */
    int exit_code = train_options_parse(argc, argv, &c);
    if (exit_code >= 0) return exit_code;
    bool is_new = !c.resume && !ranks_follows();
    const dsmoe_peers *peers;
    exit_code = is_new ? check_model(&c.settings) : CLI_OK;
    if (exit_code == CLI_OK && is_new && !c.quiet) tell_memory(c.settings_file, &c.settings);
    if (exit_code == CLI_OK && is_new) exit_code = check_out(&c.settings);
    if (exit_code == CLI_OK) exit_code = ranks_open("train", c.peer_timeout, &peers);
    if (exit_code != CLI_OK) return exit_code;
    cli_catch_interrupt();
    cli_catch_broken_pipe();
    cli_answer_interrupt(
        "stopping after this step, with a checkpoint; Ctrl-C again stops immediately");
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error, like a full disk */
    train_view view = train_view_start("train", c.settings.log_every, c.quiet);
    dsmoe_run_options options = {.resume = c.resume,
                                 .given = c.given,
                                 .n_given = c.n_given,
                                 .setting_name = train_options_name,
                                 .show_data = c.show_data,
                                 .stop_after = c.stop_after,
                                 .time_limit = c.time_limit,
                                 .n_threads = c.n_threads ? (int)c.n_threads : ranks_threads(),
                                 .peers = peers,
                                 .parallel = c.parallel,
                                 .event = train_view_event,
                                 .stop = wants_end,
                                 .context = &view};
    if (peers && !c.quiet)
        fprintf(stderr, "ranks   %d of %d threads, which divide %s\n", peers->size,
                options.n_threads, c.parallel == DSMOE_PARALLEL_EXPERTS ? "experts" : "data");
    dsmoe_run_result result = {0};
    dsmoe_error error;
    dsmoe_status status = dsmoe_run(&c.settings, &options, &result, &error);
    train_view_finish(&view);
    if (status != DSMOE_OK) return cli_failure("train", "%s", error.message);
    if (ranks_follows() || c.show_data > 0) return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    const char *folder = c.resume ? c.resume : c.settings.out;
    if (result.finished || result.end == DSMOE_RUN_OUT_OF_PATIENCE)
        print_result(folder, &result, &c.settings);
    else
        print_stop(folder, &result, c.settings.steps);
    return cli_interrupted() && result.end == DSMOE_RUN_STOPPED ? CLI_INTERRUPTED : CLI_OK;
}
