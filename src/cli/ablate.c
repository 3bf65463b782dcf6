/* ablate.c - `dsmoe ablate`: the paper's comparison of architectures (study/ablation.h) on a terminal. */
#include "cli/ablate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/suggest.h"
#include "cli/table.h"

static const char help[] =
    "usage: dsmoe ablate --data PATH --out DIR [options]\n"
    "\n"
    "Repeats the paper's comparison: trains its architectures on the same tokens in the same order,\n"
    "with equal parameters where the paper has them equal, measures the held-out loss, runs the\n"
    "paper's probes, and shows the results next to the paper's figures and in DIR/ablation.html.\n"
    "\n"
    "      --data PATH       text, JSON lines, token shards (with --tokenizer) or a folder of these;\n"
    "                        may be given several times\n"
    "      --bad-bytes NAME  for bytes that are not UTF-8: replace (by U+FFFD, default), keep, or skip\n"
    "                        the files that have any; binary files are always left out\n"
    "      --out DIR         the folder for the results, new or empty. The same command resumes it;\n"
    "                        started in several terminals, the processes share the runs\n"
    "      --tokenizer PATH  uses this tokenizer instead of training one\n"
    "      --scale NAME      tiny (11M parameters, the default), small (57M) or medium (294M)\n"
    "      --seeds N         trains every model N times, with seeds 1 to N (3)\n"
    "      --only NAME,...   these models only\n"
    "      --all             also the last five models of the list below\n"
    "      --steps N  --batch N  --seq N  --vocab-size N\n"
    "                        replace those of the scale\n"
    "      --setup NAME      fair (default): what short runs found best for each model: normalised gate\n"
    "                        values, or a scale of 4 where a token has one routed expert, balance over\n"
    "                        the batch, half the learning rate for dense. paper: gate values and\n"
    "                        balance as in the paper, one rate for all\n"
    "\n"
    "changes to the setup, for all models (VALUE) or for one (MODEL=VALUE), which takes precedence;\n"
    "may be given several times:\n"
    "      --lr X                     learning rate (the scale's)\n"
    "      --norm-topk-prob yes|no    gate values of a token add up to 1; if it has one routed expert it\n"
    "                                 keeps its softmax score (fair: yes, paper: no)\n"
    "      --routed-scaling-factor X  multiplies gate values that are not normalised (fair: 4, paper: 1)\n"
    "      --balance sequence|batch   what the balance loss is taken over (fair: batch, paper: sequence)\n"
    "      --aux-loss-alpha X         factor of the balance loss (0.01)\n"
    "      --init-std X               standard deviation of the initial weights (0.02)\n"
    "\n"
    "  -t, --threads N       threads to use (default: all processors)\n"
    "      --json            prints DIR/ablation.json instead of tables\n"
    "  -h, --help            this text\n"
    "\n"
    "models: dense, switch (top-1 of 16), gshard (top-2 of 16), gshard+shared (1 shared + top-1 of\n"
    "15), fine-m2 (1 + 3 of 31, half width), fine-m4 (8 of 64, quarter width, none shared),\n"
    "deepseekmoe (1 + 7 of 63, quarter width); with --all or --only: shared-2 (2 + 6 of 62), shared-4\n"
    "(4 + 4 of 60), half-active (1 + 3 of 63), gshard-x1.5 (wider experts), dense-x16 (16 times as wide)\n"
    "\n"
    "example:\n"
    "  scripts/corpus.sh corpus && dsmoe ablate --data corpus --out ablation --seeds 3\n";

/* The options of the command line. */
typedef struct given {
    const char *data[DSMOE_MAX_DATA];
    const char *scale, *setup, *only;
    int64_t n_seeds, n_threads;
    int64_t steps, batch, seq, vocab_size; /* 0: as the scale has it */
    option_words choices[N_CHOICES];       /* "VALUE" or "MODEL=VALUE" */
    bool all, json;
} given;

/* ---- progress -------------------------------------------------------------------------------- */

typedef struct view {
    const ablation *a;
    progress training, work; /* the bar of all runs, and the bar of any other work */
    bool is_working;
    char label[96]; /* of the bar in use */
} view;

static void print_data(const ablation *a, int n_runs)
{
    const ablation_options *o = &a->options;
    dsmoe_dataset_info info = dsmoe_dataset_get_info(a->dataset);
    char all[TABLE_CELL], used[TABLE_CELL];
    double n_train = (double)(info.n_train ? info.n_train : 1);
    fprintf(stderr, "data: %s tokens, %" PRId64 " of %" PRId64 " sequences held out\n",
            number_group(info.n_tokens, all), info.n_held_out, info.n_held_out + info.n_train);
    fprintf(stderr, "%d run%s of %s tokens, %.2f times the data\n", n_runs, n_runs == 1 ? "" : "s",
            number_group(o->steps * o->batch * o->seq, used),
            (double)(o->steps * o->batch) / n_train);
}

static void show_work(view *v, const ablation_event *event)
{
    snprintf(v->label, sizeof v->label, "%s", event->text);
    if (!v->is_working) v->work = progress_start(v->label, event->unit);
    v->is_working = true;
    progress_update(&v->work, event->done, event->total);
}

static void show_event(void *context, const ablation_event *event)
{
    view *v = context;
    const char *name = architectures[event->entry].name;
    int seed = event->seed + 1;
    switch (event->kind) {
    case ABLATION_TEXT_GONE:
        cli_note("ablate", "%s is gone; continuing with its tokens in %s/data.cache", event->text,
                 v->a->out);
        break;
    case ABLATION_WAIT:
        cli_note("ablate", "another process is preparing %s; waiting for it", v->a->out);
        break;
    case ABLATION_WORK: show_work(v, event); break;
    case ABLATION_WORK_END:
        if (v->is_working) progress_finish(&v->work);
        v->is_working = false;
        break;
    case ABLATION_START:
        cli_warn_of_files("ablate", dsmoe_dataset_files(v->a->dataset));
        if (event->run > 0) print_data(v->a, event->run);
        v->training = progress_start(v->label, "GFLOP");
        break;
    case ABLATION_STEP:
        snprintf(v->label, sizeof v->label, "run %d of %d, %s seed %d, step %" PRId64 ", loss %.3f",
                 event->run, event->n_runs, name, seed, event->step, event->loss);
        progress_update(&v->training, event->done, event->total);
        break;
    case ABLATION_SKIP:
        progress_finish(&v->training);
        fprintf(stderr, "%s, seed %d: %s\n", name, seed, event->text);
        break;
    case ABLATION_RUN_END: progress_finish(&v->training); break;
    case ABLATION_MEASURED:
        fprintf(stderr, "%s, seed %d: held-out loss %.4f (%.0f s)\n", name, seed, event->loss,
                event->seconds);
        break;
    case ABLATION_ELSEWHERE:
        cli_note("ablate", "%d more run%s being trained by other processes, not in the tables yet",
                 event->run, event->run == 1 ? " is" : "s are");
        break;
    }
}

/* The option that sets a setting of a run, for messages. */
static const char *option_name(const char *key)
{
    static const char *const options[] = {"--data", "--tokenizer", "--steps", "--batch",
                                          "--seq",  "--lr",        "--out"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(key, options[i] + 2)) return options[i];
    return key;
}

/* ---- the options ----------------------------------------------------------------------------- */

static int refuse_model(const char *word)
{
    const char *names[N_ARCHITECTURES];
    char hint[SUGGESTION];
    for (int i = 0; i < N_ARCHITECTURES; i++) names[i] = architectures[i].name;
    return cli_usage("ablate", "--only: there is no model '%s'%s", word,
                     suggest_text(word, names, N_ARCHITECTURES, hint));
}

/* Selects the models of --only or, without it, those that are trained by default. */
static int select_models(const given *g, ablation_options *o)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        o->is_selected[i] = !g->only && (g->all || !architectures[i].is_extra);
    for (const char *name = g->only; name && *name;) {
        char word[32];
        size_t length = strcspn(name, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1),
                 name);
        int entry = architecture_find(word);
        if (entry < 0) return refuse_model(word);
        o->is_selected[entry] = true;
        name += length + (name[length] == ',');
    }
    return CLI_OK;
}

static int take_choices(const given *g, ablation_options *o)
{
    dsmoe_error error;
    bool is_fair = !strcmp(g->setup, "fair");
    if (!is_fair && strcmp(g->setup, "paper") != 0)
        return cli_usage("ablate", "--setup must be fair or paper, not '%s'", g->setup);
    o->choices = is_fair ? choices_fair(o->scale->lr) : choices_paper(o->scale->lr);
    for (int i = 0; i < N_CHOICES; i++) {
        const option_words *words = &g->choices[i];
        if (choices_take(&o->choices, i, words->at, words->count, &error) != DSMOE_OK)
            return cli_usage("ablate", "--%s: %s", choice_names[i], error.message);
    }
    if (choices_settle(&o->choices, &error) == DSMOE_OK) return CLI_OK;
    return cli_usage("ablate", "%s", error.message);
}

/* Looks names up and fills in what was not given. */
static int take_options(const given *g, ablation_options *o)
{
    dsmoe_bad_bytes bad_bytes;
    o->scale = study_scale_find(g->scale);
    if (!o->scale)
        return cli_usage("ablate", "--scale must be tiny, small or medium, not '%s'", g->scale);
    if (names_find_bad_bytes("ablate", o->bad_bytes, &bad_bytes) != CLI_OK) return CLI_USAGE;
    o->steps = g->steps ? g->steps : o->scale->steps;
    o->batch = g->batch ? g->batch : o->scale->batch;
    o->seq = g->seq ? g->seq : o->scale->seq;
    o->vocab_size = g->vocab_size ? g->vocab_size : o->scale->vocab_size;
    o->n_seeds = (int)g->n_seeds;
    o->n_threads = (int)g->n_threads;
    if (take_choices(g, o) != CLI_OK) return CLI_USAGE;
    if ((double)o->steps * (double)o->batch * (double)o->seq > 1e15)
        return cli_usage("ablate", "--steps, --batch and --seq make too many tokens");
    return select_models(g, o);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int print_json(const ablation *a)
{
    char path[DSMOE_PATH + 32], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/ablation.json", a->out);
    int exit_code = cli_read_file("ablate", path, &text, &length);
    if (exit_code != CLI_OK) return exit_code;
    fwrite(text, 1, length, stdout);
    free(text);
    return CLI_OK;
}

static int fail(const ablation *a, const dsmoe_error *error)
{
    if (error->status != DSMOE_ERROR_STOPPED)
        return cli_failure("ablate", "%s%s", error->message,
                           a->is_other ? "; name another --out" : "");
    fprintf(stderr, "dsmoe ablate: stopped; the same command continues from here\n");
    return CLI_INTERRUPTED;
}

static int compare(ablation *a, ablation_options *options, bool json)
{
    view v = {.a = a};
    dsmoe_error error;
    options->setting_name = option_name;
    options->event = show_event;
    options->stop = cli_stop;
    options->context = &v;
    dsmoe_status status = ablation_open(a, options, &error);
    if (status == DSMOE_OK) status = ablation_train(a, &error);
    if (status != DSMOE_OK) return fail(a, &error);
    if (json) return print_json(a);
    ablate_print_tables(a);
    printf("\n%s/ablation.html shows the curves\n", a->out);
    return CLI_OK;
}

int command_ablate(int argc, char **argv)
{
    given g = {.scale = "tiny", .setup = "fair", .n_seeds = 3};
    ablation_options options = {.data = g.data, .bad_bytes = "replace"};
    option_words data = {g.data, DSMOE_MAX_DATA, 0};
    const char *choices[N_CHOICES][N_ARCHITECTURES + 1];
    for (int i = 0; i < N_CHOICES; i++)
        g.choices[i] = (option_words){choices[i], N_ARCHITECTURES + 1, 0};
    const option_row rows[] = {
        {"--data", NULL, OPTION_LIST, &data, 0, 0},
        {"--bad-bytes", NULL, OPTION_NAME, &options.bad_bytes, 0, 0},
        {"--out", NULL, OPTION_TEXT, &options.out, 0, 0},
        {"--tokenizer", NULL, OPTION_TEXT, &options.tokenizer, 0, 0},
        {"--scale", NULL, OPTION_NAME, &g.scale, 0, 0},
        {"--setup", NULL, OPTION_NAME, &g.setup, 0, 0},
        {"--seeds", NULL, OPTION_INTEGER, &g.n_seeds, 1, ABLATION_MAX_SEEDS},
        {"--only", NULL, OPTION_NAME, &g.only, 0, 0},
        {"--all", NULL, OPTION_FLAG, &g.all, 0, 0},
        {"--steps", NULL, OPTION_INTEGER, &g.steps, 1, 1e9},
        {"--batch", NULL, OPTION_INTEGER, &g.batch, 1, CLI_MAX_BATCH},
        {"--seq", NULL, OPTION_INTEGER, &g.seq, 2, 1 << 20},
        {"--vocab-size", NULL, OPTION_INTEGER, &g.vocab_size, 258, 1 << 24},
        {"--lr", NULL, OPTION_LIST, &g.choices[0], 0, 0},
        {"--norm-topk-prob", NULL, OPTION_LIST, &g.choices[1], 0, 0},
        {"--routed-scaling-factor", NULL, OPTION_LIST, &g.choices[2], 0, 0},
        {"--balance", NULL, OPTION_LIST, &g.choices[3], 0, 0},
        {"--aux-loss-alpha", NULL, OPTION_LIST, &g.choices[4], 0, 0},
        {"--init-std", NULL, OPTION_LIST, &g.choices[5], 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &g.n_threads, 1, CLI_MAX_THREADS},
        {"--json", NULL, OPTION_FLAG, &g.json, 0, 0},
    };
    int exit_code =
        options_parse("ablate", help, rows, sizeof rows / sizeof *rows, argc, argv, NULL);
    if (exit_code >= 0) return exit_code;
    if (data.count == 0)
        return cli_usage("ablate",
                         "no text to learn from: name a file or a folder with --data PATH");
    if (!options.out || !*options.out)
        return cli_usage(
            "ablate", "no folder for the results: name one with --out DIR, such as --out ablation");
    if (options.tokenizer && g.vocab_size)
        return cli_usage("ablate", "--tokenizer and --vocab-size cannot be used together");
    if (g.only && !*g.only) return cli_usage("ablate", "--only names no model");
    if (g.only && g.all) return cli_usage("ablate", "--only and --all cannot be used together");
    options.n_data = data.count;
    exit_code = take_options(&g, &options);
    if (exit_code != CLI_OK) return exit_code;
    ablation *a = calloc(1, sizeof *a);
    if (!a) return cli_failure("ablate", "not enough memory");
    cli_catch_interrupt();
    cli_catch_broken_pipe();
    cli_answer_interrupt(
        "stopping after this step, with a checkpoint; Ctrl-C again stops immediately");
    exit_code = compare(a, &options, g.json);
    ablation_close(a);
    free(a);
    return exit_code;
}
