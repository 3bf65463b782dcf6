/* train.c - `dsmoe train`: trains a model on text, or goes on with a run that was stopped. */
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/train_view.h"

static const char help[] =
    "usage: dsmoe train --data PATH --out DIR [options]\n"
    "       dsmoe train --resume DIR [--stop-after N] [-t N]\n"
    "\n"
    "Trains a DeepSeekMoE language model. DIR becomes a run: checkpoints that every other command\n"
    "takes as a model (DIR/best, DIR/latest), the settings, metrics.jsonl and events for TensorBoard,\n"
    "and report.html, which shows how it goes. Ctrl-C saves and stops; --resume goes on from there and\n"
    "gives the same model, bit for bit, as if nothing had happened.\n"
    "\n"
    "      --data PATH            text, .jsonl with \"text\", token shards (.bin), or a folder of them;\n"
    "                             may be given several times\n"
    "      --out DIR              the folder of the run\n"
    "      --settings FILE        settings from a file, such as another run's settings.json; options\n"
    "                             on the command line come over them\n"
    "      --resume DIR           go on with a run, with the settings it began with\n"
    "      --stop-after N         end with a checkpoint after N steps in all\n"
    "  -t, --threads N            threads (all processors); does not change the result\n"
    "      --quiet                no progress, only what went wrong\n"
    "\n"
    "the model:\n"
    "      --preset NAME          tiny (default), 2b or 16b\n"
    "      --config FILE          a config.json of your own\n"
    "      --init PATH            go on from the weights of a model: its folder, or a .gguf file\n"
    "      --tokenizer PATH       a tokenizer.json, its folder or a .gguf file (else one is\n"
    "                             trained on the data)\n"
    "      --vocab-size N         tokens of one that is trained (8192, or what the text allows)\n"
    "      --init-std X           spread of the first weights (the configuration's)\n"
    "\n"
    "learning:\n"
    "      --steps N              steps in all (1000)\n"
    "      --batch N              sequences of a batch (8)\n"
    "      --seq N                tokens of a sequence (256)\n"
    "      --accumulate N         batches of a step (1)\n"
    "      --lr X                 highest learning rate (0.001)\n"
    "      --schedule NAME        step (the paper's, default), cosine or constant\n"
    "      --warmup N             steps up to the highest rate (a twentieth of all, at most 2000)\n"
    "      --weight-decay X       of AdamW, on matrices (0.1)\n"
    "      --beta1 X, --beta2 X, --eps X   of AdamW (0.9, 0.95, 1e-8)\n"
    "      --clip X               largest norm of the gradient; 0: any (1)\n"
    "      --aux-loss-alpha X     expert-level balance factor (the configuration's)\n"
    "      --device-groups N      groups of experts for the device-level balance loss (0: none)\n"
    "      --device-loss-alpha X  its factor (0.05)\n"
    "      --recompute            less memory for activations, a third more time\n"
    "  -s, --seed N               of the first weights and the order of the data (0)\n"
    "\n"
    "looking at it:\n"
    "      --held-out X           share of the data that is never learnt from (0.05)\n"
    "      --eval-every N         steps between looks at its loss (100; 0: never)\n"
    "      --eval-sequences N     sequences of it that are used (64; 0: all)\n"
    "      --sample-every N       steps between texts that the model writes (250; 0: never)\n"
    "      --sample-tokens N      tokens of such a text (64)\n"
    "      --sample-prompt TEXT   what it begins with\n"
    "      --save-every N         steps between checkpoints (250; 0: at the end only)\n"
    "      --keep N               last checkpoints to keep, beside the best (2)\n"
    "      --dtype NAME           of their weights: f32 (default), f16 or bf16; what resuming needs is\n"
    "                             kept exactly beside them\n"
    "      --log-every N          steps between lines of the log (10)\n"
    "      --report-every N       refresh the report every N steps, at most 4 times a minute (10)\n"
    "  -h, --help                 this text\n"
    "\n"
    "examples:\n"
    "  dsmoe train --data notes/ --out runs/notes --steps 2000\n"
    "  dsmoe train --resume runs/notes\n"
    "  dsmoe generate -m runs/notes/best -p \"Once upon a time\"\n";

typedef struct train_command {
    dsmoe_run_settings settings;
    const char *data_at[DSMOE_MAX_DATA];
    option_words data;
    /* Texts as they were given; NULL if they were not. */
    const char *out, *config, *preset, *init, *tokenizer, *schedule, *sample_prompt, *dtype;
    const char *settings_file, *resume;
    int64_t stop_after, n_threads;
    bool quiet;
} train_command;

/* ---- options --------------------------------------------------------------------------------- */

static const double many = 1e9; /* steps */

/* Numbers and flags go straight into the settings. */
static int parse(train_command *c, int argc, char **argv)
{
    dsmoe_run_settings *s = &c->settings;
    c->data = (option_words){c->data_at, DSMOE_MAX_DATA, 0};
    const option_row rows[] = {
        {"--data", NULL, OPTION_LIST, &c->data, 0, 0},
        {"--out", NULL, OPTION_TEXT, &c->out, 0, 0},
        {"--settings", NULL, OPTION_TEXT, &c->settings_file, 0, 0},
        {"--resume", NULL, OPTION_TEXT, &c->resume, 0, 0},
        {"--stop-after", NULL, OPTION_INTEGER, &c->stop_after, 1, many},
        {"--threads", "-t", OPTION_INTEGER, &c->n_threads, 1, CLI_MAX_THREADS},
        {"--quiet", NULL, OPTION_FLAG, &c->quiet, 0, 0},
        {"--preset", NULL, OPTION_TEXT, &c->preset, 0, 0},
        {"--config", NULL, OPTION_TEXT, &c->config, 0, 0},
        {"--init", NULL, OPTION_TEXT, &c->init, 0, 0},
        {"--tokenizer", NULL, OPTION_TEXT, &c->tokenizer, 0, 0},
        {"--vocab-size", NULL, OPTION_INTEGER, &s->vocab_size, 258, 1 << 24},
        {"--init-std", NULL, OPTION_NUMBER, &s->init_std, 0, 10},
        {"--steps", NULL, OPTION_INTEGER, &s->steps, 1, many},
        {"--batch", NULL, OPTION_INTEGER, &s->batch, 1, 65536},
        {"--seq", NULL, OPTION_INTEGER, &s->seq, 1, 1 << 20},
        {"--accumulate", NULL, OPTION_INTEGER, &s->accumulate, 1, 65536},
        {"--lr", NULL, OPTION_NUMBER, &s->lr, 0, 10},
        {"--schedule", NULL, OPTION_TEXT, &c->schedule, 0, 0},
        {"--warmup", NULL, OPTION_INTEGER, &s->warmup, 0, many},
        {"--weight-decay", NULL, OPTION_NUMBER, &s->weight_decay, 0, 0.999999},
        {"--beta1", NULL, OPTION_NUMBER, &s->beta1, 0, 0.999999},
        {"--beta2", NULL, OPTION_NUMBER, &s->beta2, 0, 0.999999},
        {"--eps", NULL, OPTION_NUMBER, &s->eps, 1e-30, 1},
        {"--clip", NULL, OPTION_NUMBER, &s->clip, 0, 1e6},
        {"--aux-loss-alpha", NULL, OPTION_NUMBER, &s->aux_loss_alpha, 0, 1000},
        {"--device-groups", NULL, OPTION_INTEGER, &s->device_groups, 0, 65536},
        {"--device-loss-alpha", NULL, OPTION_NUMBER, &s->device_loss_alpha, 0, 1000},
        {"--recompute", NULL, OPTION_FLAG, &s->recompute, 0, 0},
        {"--seed", "-s", OPTION_INTEGER, &s->seed, 0, 0x1p53},
        {"--held-out", NULL, OPTION_NUMBER, &s->held_out, 0, 0.9},
        {"--eval-every", NULL, OPTION_INTEGER, &s->eval_every, 0, many},
        {"--eval-sequences", NULL, OPTION_INTEGER, &s->eval_sequences, 0, many},
        {"--sample-every", NULL, OPTION_INTEGER, &s->sample_every, 0, many},
        {"--sample-tokens", NULL, OPTION_INTEGER, &s->sample_tokens, 0, 1 << 20},
        {"--sample-prompt", NULL, OPTION_TEXT, &c->sample_prompt, 0, 0},
        {"--save-every", NULL, OPTION_INTEGER, &s->save_every, 0, many},
        {"--keep", NULL, OPTION_INTEGER, &s->keep, 1, 1e6},
        {"--dtype", NULL, OPTION_TEXT, &c->dtype, 0, 0},
        {"--log-every", NULL, OPTION_INTEGER, &s->log_every, 1, many},
        {"--report-every", NULL, OPTION_INTEGER, &s->report_every, 1, many},
    };
    return options_parse("train", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
}

/* A text of the command line over that of the settings. */
static int set_text(char *field, size_t size, const char *name, const char *text)
{
    if (!text) return CLI_OK;
    if (strlen(text) >= size)
        return cli_usage("train", "%s has more than %zu bytes", name, size - 1);
    memset(field, 0, size);
    memcpy(field, text, strlen(text));
    return CLI_OK;
}

#define SET_TEXT(name, field)                                                                      \
    if (set_text(c->settings.field, sizeof c->settings.field, name, c->field)) return CLI_USAGE

static int set_texts(train_command *c)
{
    dsmoe_run_settings *s = &c->settings;
    if (!!c->config + !!c->preset + !!c->init > 1)
        return cli_usage("train", "only one of --config, --preset and --init");
    if (c->config || c->preset || c->init) *s->config = *s->preset = *s->init = '\0';
    SET_TEXT("--out", out);
    SET_TEXT("--config", config);
    SET_TEXT("--preset", preset);
    SET_TEXT("--init", init);
    SET_TEXT("--tokenizer", tokenizer);
    SET_TEXT("--schedule", schedule);
    SET_TEXT("--sample-prompt", sample_prompt);
    SET_TEXT("--dtype", dtype);
    if (c->data.count > 0) memset(s->data, 0, sizeof s->data);
    for (int i = 0; i < c->data.count; i++)
        if (set_text(s->data[i], sizeof s->data[i], "--data", c->data_at[i])) return CLI_USAGE;
    if (strcmp(s->schedule, "step") && strcmp(s->schedule, "cosine") &&
        strcmp(s->schedule, "constant"))
        return cli_usage("train", "--schedule must be step, cosine or constant, not '%s'",
                         s->schedule);
    if (!*s->data[0]) return cli_usage("train", "learn from what? --data names it");
    if (!*s->out) return cli_usage("train", "to which folder? --out names it");
    return -1;
}

/* Saved settings are the run's: nothing else may be asked for. */
static int check_resume(train_command *c, const dsmoe_run_settings *before)
{
    bool changed = memcmp(&c->settings, before, sizeof *before) != 0;
    if (changed || c->data.count || c->out || c->config || c->preset || c->init || c->tokenizer ||
        c->schedule || c->sample_prompt || c->dtype || c->settings_file)
        return cli_usage("train",
                         "--resume goes on with the settings of the run: beside it there can "
                         "only be --stop-after, --threads and --quiet");
    if (!*c->resume) return cli_usage("train", "which run? --resume names its folder");
    /* For the log on this screen; whether they are good is seen later. */
    char path[DSMOE_PATH + 32];
    snprintf(path, sizeof path, "%s/settings.json", c->resume);
    dsmoe_run_settings_read(path, &c->settings, NULL);
    return -1;
}

/* The command line is read twice: what it says goes over a file of settings that it names. */
static int prepare(train_command *c, int argc, char **argv)
{
    static dsmoe_run_settings before;
    before = dsmoe_run_settings_default();
    memcpy(&c->settings, &before, sizeof before);
    int exit_code = parse(c, argc, argv);
    if (exit_code >= 0) return exit_code;
    if (c->resume) return check_resume(c, &before);
    if (c->settings_file) {
        dsmoe_error error;
        memcpy(&c->settings, &before, sizeof before);
        if (dsmoe_run_settings_read(c->settings_file, &c->settings, &error))
            return cli_failure("train", "%s", error.message);
        exit_code = parse(c, argc, argv);
        if (exit_code >= 0) return exit_code;
    }
    return set_texts(c);
}

/* ---- the run --------------------------------------------------------------------------------- */

static bool wants_end(void *context)
{
    (void)context;
    return cli_interrupted();
}

/* The best model where there is one: links may be impossible, or nothing was measured. */
static void find_model(const char *folder, const dsmoe_run_result *result, char *path, size_t size)
{
    snprintf(path, size, "%s/best", folder);
    if (access(path, R_OK) != 0) snprintf(path, size, "%s", result->checkpoint);
}

static void print_result(const char *folder, const dsmoe_run_result *r)
{
    char model[DSMOE_PATH + 64];
    find_model(folder, r, model, sizeof model);
    printf("done:   %" PRId64 " steps, loss %.4f", r->step, r->loss);
    if (!isnan(r->held_out_loss)) printf(", held-out loss %.4f", r->held_out_loss);
    printf("\nmodel:  %s\nreport: %s\n", model, r->report);
    printf("try:    dsmoe generate -m ");
    cli_print_word(stdout, model);
    printf(" -n 64 -p \"Once upon a time\"\n");
}

static void print_stop(const char *folder, const dsmoe_run_result *r, int64_t n_steps)
{
    char settings[DSMOE_PATH + 32];
    snprintf(settings, sizeof settings, "%s/settings.json", folder);
    if (r->step > 0)
        printf("stopped after step %" PRId64 " of %" PRId64 ", saved as %s\n", r->step, n_steps,
               r->checkpoint);
    else
        printf("stopped before the first step\n");
    if (access(settings, F_OK) == 0) {
        printf("go on:  dsmoe train --resume ");
        cli_print_word(stdout, folder);
        printf("\n");
    } else {
        printf("go on:  the same command begins again\n");
    }
}

int command_train(int argc, char **argv)
{
    static train_command c; /* its settings are large */
    int exit_code = prepare(&c, argc, argv);
    if (exit_code >= 0) return exit_code;
    cli_catch_interrupt();
    cli_answer_interrupt("\nstopping after this step, with a checkpoint; once more: at once\n");
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error like a full disk */
    train_view view = train_view_start("train", c.settings.log_every, c.quiet);
    dsmoe_run_options options = {.resume = c.resume,
                                 .stop_after = c.stop_after,
                                 .n_threads = (int)c.n_threads,
                                 .event = train_view_event,
                                 .stop = wants_end,
                                 .context = &view};
    dsmoe_run_result result = {0};
    dsmoe_error error;
    dsmoe_status status = dsmoe_run(&c.settings, &options, &result, &error);
    train_view_finish(&view);
    if (status != DSMOE_OK) return cli_failure("train", "%s", error.message);
    const char *folder = c.resume ? c.resume : c.settings.out;
    if (result.finished)
        print_result(folder, &result);
    else
        print_stop(folder, &result, c.settings.steps);
    return cli_interrupted() && !result.finished ? CLI_INTERRUPTED : CLI_OK;
}
