/* demo.c - `dsmoe demo`: from nothing to a small model that has learned something, in a minute. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "study/demo_corpus.h"
#include "cli/demo_folder.h"
#include "cli/demo_view.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "model/config_write.h"

static const char help[] =
    "usage: dsmoe demo [--out DIR] [options]\n"
    "\n"
    "Makes up a text of several kinds (sums, dates, brackets, records, stories, ...), trains a\n"
    "tokenizer and a small DeepSeekMoE on it for a minute or two, asks the model things that it has\n"
    "not seen, and shows which experts do what. Nothing is downloaded.\n"
    "\n"
    "      --out DIR       the folder for everything (dsmoe-demo); replaces an earlier demo\n"
    "      --force         replaces it even if its model was trained further\n"
    "      --steps N       steps of training (1400, 60 to 90 s on two cores)\n"
    "      --seconds N     stop training after N seconds, even if steps are left\n"
    "  -s, --seed N        another seed gives another text and another model (1)\n"
    "  -t, --threads N     threads (default: all processors)\n"
    "  -h, --help          this text\n"
    "\n"
    "example:\n"
    "  dsmoe demo --out demo && dsmoe generate -m demo --temp 0 -p \"add 23 + 8 =\"\n";

/* The longest folder name that leaves room for the names in it. */
enum { MAX_OUT = DSMOE_PATH - 64 };

typedef struct demo_command {
    const char *out;
    int64_t steps, seed, n_threads;
    bool force;
    double seconds, stop_at; /* stop_at is on the clock; 0: no limit */
    char corpus[DSMOE_PATH], config[DSMOE_PATH], sample[DSMOE_PATH];
    demo_watch watch;
    dsmoe_run_result result;
} demo_command;

/* ---- the run --------------------------------------------------------------------------------- */

/* The model and its training, chosen so that a minute on two cores is enough. Experts are many and narrow.
 * The text hardly has words for a larger vocabulary. */
enum {
    VOCAB_SIZE = 544,
    SEQUENCE = 64, /* two or three examples */
    BATCH = 16,
    STEPS = 1400,
    N_EVALUATIONS = 5,
    EVAL_SEQUENCES = 64,
};

/* The balance loss is over the batch (seq_aux false): a sequence is of one kind only, and balance within it
 * would keep experts from specialising. */
static const dsmoe_config demo_config = {.vocab_size = VOCAB_SIZE,
                                         .hidden_size = 128,
                                         .intermediate_size = 384,
                                         .moe_intermediate_size = 32,
                                         .num_hidden_layers = 3,
                                         .num_attention_heads = 4,
                                         .num_key_value_heads = 4,
                                         .n_shared_experts = 1,
                                         .n_routed_experts = 63,
                                         .num_experts_per_tok = 7,
                                         .moe_layer_freq = 1,
                                         .max_position_embeddings = SEQUENCE,
                                         .aux_loss_alpha = 0.001,
                                         .initializer_range = 0.08,
                                         .rms_norm_eps = 1e-6,
                                         .rope_theta = 10000,
                                         .rope_scaling_factor = 1,
                                         .bos_token_id = -1,
                                         .eos_token_id = -1};

static int write_config(const demo_command *c)
{
    dsmoe_error error;
    if (config_write(c->out, &demo_config, DSMOE_F32, &error) == DSMOE_OK) return CLI_OK;
    return cli_failure("demo", "%s", error.message);
}

static dsmoe_run_settings make_settings(const demo_command *c)
{
    dsmoe_run_settings s = dsmoe_run_settings_default();
    snprintf(s.data[0], sizeof s.data[0], "%s", c->corpus);
    snprintf(s.out, sizeof s.out, "%s", c->out);
    snprintf(s.config, sizeof s.config, "%s", c->config);
    snprintf(s.schedule, sizeof s.schedule, "cosine");
    s.vocab_size = VOCAB_SIZE;
    s.steps = c->steps;
    s.batch = BATCH;
    s.seq = SEQUENCE;
    s.accumulate = 1;
    s.lr = 2e-3;
    s.seed = c->seed;
    s.held_out = 0.02;
    s.eval_every = c->steps >= N_EVALUATIONS ? c->steps / N_EVALUATIONS : 1;
    s.eval_sequences = EVAL_SEQUENCES;
    s.sample_every = s.save_every = 0;
    s.keep = 1;
    return s;
}

static void on_event(void *context, const dsmoe_run_event *event)
{
    demo_command *c = context;
    /* The time of preparations does not count. */
    if (event->kind == DSMOE_RUN_START && c->seconds > 0) c->stop_at = cli_seconds() + c->seconds;
    demo_watch_event(&c->watch, event);
}

static bool should_stop(void *context)
{
    const demo_command *c = context;
    return cli_interrupted() || (c->stop_at > 0 && cli_seconds() >= c->stop_at);
}

static int train(demo_command *c)
{
    dsmoe_run_settings settings = make_settings(c);
    dsmoe_run_options options = {
        .n_threads = (int)c->n_threads, .event = on_event, .stop = should_stop, .context = c};
    dsmoe_error error;
    c->watch.tokens_per_step = settings.batch * settings.seq * settings.accumulate;
    double start = cli_seconds();
    dsmoe_status status = dsmoe_run(&settings, &options, &c->result, &error);
    demo_watch_end(&c->watch);
    if (cli_interrupted()) return CLI_INTERRUPTED;
    if (status != DSMOE_OK) return cli_failure("demo", "%s", error.message);
    if (c->result.step == 0)
        return cli_failure("demo", "not a single step was done within %g seconds", c->seconds);
    char steps[TABLE_CELL], tokens[TABLE_CELL];
    printf("%s steps, %s tokens, in %.0f s\n", number_group(c->result.step, steps),
           number_group(c->result.step * c->watch.tokens_per_step, tokens), cli_seconds() - start);
    cli_flush();
    return CLI_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int parse(demo_command *c, int argc, char **argv)
{
    const option_row rows[] = {
        {"--out", "-o", OPTION_PATH, &c->out, 0, 0},
        {"--force", NULL, OPTION_FLAG, &c->force, 0, 0},
        {"--steps", NULL, OPTION_INTEGER, &c->steps, 1, 1e9},
        {"--seconds", NULL, OPTION_NUMBER, &c->seconds, 0, 1e9},
        {"--seed", "-s", OPTION_INTEGER, &c->seed, 0, 0x1p53},
        {"--threads", "-t", OPTION_INTEGER, &c->n_threads, 1, CLI_MAX_THREADS}};
    int exit_code = options_parse("demo", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (exit_code >= 0) return exit_code;
    if (strlen(c->out) > MAX_OUT) return cli_usage("demo", "the name of the folder is too long");
    snprintf(c->corpus, sizeof c->corpus, "%s/corpus", c->out);
    snprintf(c->config, sizeof c->config, "%s/config.json", c->out);
    snprintf(c->sample, sizeof c->sample, "%s/sample.ids", c->out);
    return -1;
}

static int make_text(const demo_command *c)
{
    demo_size size;
    dsmoe_error error;
    int exit_code = demo_folder_prepare(c->out, c->steps, c->force);
    if (exit_code != CLI_OK) return exit_code;
    demo_print_title("A text of several kinds, made up here");
    if (demo_corpus_write(c->corpus, (uint64_t)c->seed, &size, &error) != DSMOE_OK)
        return cli_failure("demo", "%s", error.message);
    exit_code = write_config(c);
    if (exit_code == CLI_OK) demo_print_corpus(c->corpus, (uint64_t)c->seed, size);
    return exit_code;
}

static bool show_progress(void *context, double done, double total)
{
    progress_update(context, done, total);
    return !cli_interrupted();
}

static int examine(const demo_command *c)
{
    demo_study study;
    dsmoe_error error;
    progress bar = progress_start("asking", "prompts");
    const demo_study_options options = {.seed = (uint64_t)c->seed,
                                        .n_threads = (int)c->n_threads,
                                        .ids_path = c->sample,
                                        .progress = show_progress,
                                        .context = &bar};
    dsmoe_status status = demo_study_run(c->result.checkpoint, &options, &study, &error);
    int exit_code = CLI_OK;
    progress_finish(&bar);
    if (status != DSMOE_OK && status != DSMOE_ERROR_STOPPED) {
        exit_code = cli_failure("demo", "%s", error.message);
    } else if (status != DSMOE_OK) {
        exit_code = CLI_INTERRUPTED;
    } else {
        demo_print_title("What it has learned: answers to prompts that were not in the text");
        demo_print_scores(&study);
        demo_print_title("Which experts serve which kind");
        demo_print_experts(&study);
    }
    demo_study_free(&study);
    return exit_code;
}

static void print_interrupted(const demo_command *c)
{
    fprintf(stderr, "stopped; to start again: %s demo --out %s\n", program_invocation_name, c->out);
    if (c->result.step > 0 && !c->result.finished)
        fprintf(stderr, "to continue training: %s train --resume %s\n", program_invocation_name,
                c->out);
}

int command_demo(int argc, char **argv)
{
    demo_command c = {.out = "dsmoe-demo", .steps = STEPS, .seed = 1};
    int exit_code = parse(&c, argc, argv);
    if (exit_code >= 0) return exit_code;
    cli_catch_interrupt();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error, like a full disk */
    exit_code = make_text(&c);
    if (exit_code == CLI_OK) {
        demo_print_title("A small DeepSeekMoE learns it");
        exit_code = train(&c);
    }
    if (exit_code == CLI_OK) exit_code = examine(&c);
    if (exit_code == CLI_INTERRUPTED) print_interrupted(&c);
    if (exit_code != CLI_OK) return exit_code;
    demo_print_title("Where it is, and what to try next");
    demo_print_next(program_invocation_name, c.out, c.result.report);
    return CLI_OK;
}
