/* ablate.c - `dsmoe ablate`: the paper's comparison of architectures, trained on given text. */
#include "cli/ablate.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/suggest.h"
#include "cli/table.h"
#include "model/config_write.h"

static const char help[] =
    "usage: dsmoe ablate --data PATH --out DIR [options]\n"
    "\n"
    "Repeats the paper's comparison: trains its architectures on the same tokens in the same order,\n"
    "with equal parameters where the paper has them equal, measures the held-out loss, asks the\n"
    "paper's probes, and shows it all beside the paper's figures and in DIR/ablation.html.\n"
    "\n"
    "      --data PATH       text, JSON lines, token shards (with --tokenizer) or a folder of these;\n"
    "                        may be given several times\n"
    "      --bad-bytes NAME  bytes that are not UTF-8: replace them by U+FFFD (default), keep them, or\n"
    "                        skip files that have any; binary files are always left out\n"
    "      --out DIR         the folder for all of it, new or empty; the same command goes on where\n"
    "                        it stopped\n"
    "      --tokenizer PATH  takes this tokenizer instead of training one\n"
    "      --scale NAME      tiny (11M parameters, the default), small (57M) or medium (294M)\n"
    "      --seeds N         trains every model N times, from seeds 1 to N (3)\n"
    "      --only NAME,...   these models only\n"
    "      --all             the last five models as well\n"
    "      --steps N  --batch N  --seq N  --vocab-size N\n"
    "                        instead of what the scale has\n"
    "\n"
    "for all models (VALUE) or for one (MODEL=VALUE); may be given several times, one for a model counts\n"
    "for more:\n"
    "      --lr X                     learning rate (default: the scale's)\n"
    "      --norm-topk-prob yes|no    gate values of a token add up to 1 (default: no; a token with one\n"
    "                                 routed expert keeps its softmax score)\n"
    "      --routed-scaling-factor X  times gate values that are not normalised (default: 1)\n"
    "      --balance sequence|batch   what the balance loss is taken over (default: sequence)\n"
    "      --aux-loss-alpha X         factor of the balance loss (default: 0.01)\n"
    "      --init-std X               spread of the first weights (default: 0.02)\n"
    "\n"
    "  -t, --threads N       threads to use (default: all processors)\n"
    "      --json            prints DIR/ablation.json instead of tables\n"
    "  -h, --help            this text\n"
    "\n"
    "models: dense, switch (top-1 of 16), gshard (top-2 of 16), gshard+shared (1 shared + top-1 of\n"
    "15), fine-m2 (1 + 3 of 31 of half width), fine-m4 (8 of 64 of a quarter, none shared),\n"
    "deepseekmoe (1 + 7 of 63 of a quarter); with --all or --only: shared-2 (2 + 6 of 62), shared-4\n"
    "(4 + 4 of 60), half-active (1 + 3 of 63), gshard-x1.5 (wider experts), dense-x16 (16 times as wide)\n"
    "\n"
    "example:\n"
    "  scripts/corpus.sh corpus && dsmoe ablate --data corpus --out ablation --seeds 3\n";

static const double held_out = 0.01; /* share of the text */

enum { N_EVALS = 20, EVAL_SEQUENCES = 64, N_SAVES = 8 };

/* ---- what is compared ------------------------------------------------------------------------ */

static int refuse_model(const char *word)
{
    const char *names[N_ARCHITECTURES];
    char hint[SUGGESTION];
    for (int i = 0; i < N_ARCHITECTURES; i++) names[i] = architectures[i].name;
    return cli_usage("ablate", "--only: there is no model '%s'%s", word,
                     suggest_text(word, names, N_ARCHITECTURES, hint));
}

/* Marks the models of "NAME,NAME", or those that are always trained. */
static int select_models(ablation *a)
{
    const ablate_options *o = a->options;
    for (int i = 0; i < N_ARCHITECTURES; i++)
        a->entries[i].is_selected = !o->only && (o->all || !architectures[i].is_extra);
    for (const char *name = o->only; name && *name;) {
        char word[32];
        size_t length = strcspn(name, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1),
                 name);
        int entry = architecture_find(word);
        if (entry < 0) return refuse_model(word);
        a->entries[entry].is_selected = true;
        name += length + (name[length] == ',');
    }
    return CLI_OK;
}

/* Equal where the paper has it equal: expert parameters, all and for a token. */
static int check_equality(const ablation *a)
{
    const architecture_parameters *first = NULL;
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        const architecture_parameters *p = &a->entries[i].parameters;
        if (!architectures[i].is_equal) continue;
        if (first && (p->experts != first->experts || p->active_experts != first->active_experts))
            return cli_failure("ablate", "%s has other expert parameters than it should",
                               architectures[i].name);
        if (!first) first = p;
    }
    return CLI_OK;
}

static int prepare_models(ablation *a)
{
    architecture_common common = {.vocab_size = dsmoe_tokenizer_size(a->tokenizer),
                                  .bos_token_id = dsmoe_tokenizer_bos(a->tokenizer),
                                  .eos_token_id = dsmoe_tokenizer_eos(a->tokenizer),
                                  .seq = a->seq};
    char path[ABLATE_PATH], name[64];
    dsmoe_error error;
    if (!ablate_path(a, path, "configs")) return CLI_FAILURE;
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        ablate_entry *e = &a->entries[i];
        e->config = architecture_config(e->model, a->scale, &common, &a->choices.of[i]);
        if (architecture_count(&e->config, &e->parameters, &error) != DSMOE_OK)
            return cli_failure("ablate", "%s: %s", e->model->name, error.message);
        snprintf(name, sizeof name, "%s.json", e->model->name);
        if (config_write_as(path, name, &e->config, DSMOE_F32, &error) != DSMOE_OK)
            return cli_failure("ablate", "%s", error.message);
    }
    return check_equality(a);
}

/* ---- what they are trained on ---------------------------------------------------------------- */

static bool show_progress(void *context, double done, double total)
{
    progress_update(context, done, total);
    return !cli_interrupted();
}

static int failure_or_interrupted(const dsmoe_error *error)
{
    return error->status == DSMOE_ERROR_STOPPED ? CLI_INTERRUPTED
                                                : cli_failure("ablate", "%s", error->message);
}

static int train_tokenizer(const ablation *a, const char *folder)
{
    const char *data[DSMOE_MAX_DATA];
    for (int i = 0; i < a->n_data; i++) data[i] = a->data[i];
    dsmoe_tokenizer_train_options options = {.paths = data,
                                             .n_paths = a->n_data,
                                             .held_out = held_out,
                                             .bad_bytes = a->bad_bytes,
                                             .vocab_size = a->vocab_size,
                                             .n_threads = (int)a->options->n_threads};
    dsmoe_error error;
    progress bar = progress_start("tokenizer", "bytes");
    dsmoe_status status = dsmoe_tokenizer_train(&options, folder, show_progress, &bar, &error);
    progress_finish(&bar);
    return status == DSMOE_OK ? CLI_OK : failure_or_interrupted(&error);
}

/* One tokenizer for all: the one that was given, or one that is trained where there is none yet. */
static int open_tokenizer(ablation *a)
{
    char path[ABLATE_PATH], trained[ABLATE_PATH];
    dsmoe_error error;
    if (!ablate_path(a, trained, "tokenizer") || !ablate_path(a, path, "tokenizer/tokenizer.json"))
        return CLI_FAILURE;
    const char *source = *a->tokenizer_path ? a->tokenizer_path : trained;
    int exit_code =
        source == trained && access(path, F_OK) != 0 ? train_tokenizer(a, trained) : CLI_OK;
    if (exit_code != CLI_OK) return exit_code;
    if (dsmoe_tokenizer_open(source, &a->tokenizer, &error) != DSMOE_OK)
        return failure_or_interrupted(&error);
    return CLI_OK;
}

static int open_dataset(ablation *a)
{
    const char *data[DSMOE_MAX_DATA];
    for (int i = 0; i < a->n_data; i++) data[i] = a->data[i];
    dsmoe_dataset_options options = {.paths = data,
                                     .n_paths = a->is_text_gone ? 0 : a->n_data,
                                     .bad_bytes = a->bad_bytes,
                                     .tokenizer = a->tokenizer,
                                     .cache = a->out,
                                     .vocab_size = dsmoe_tokenizer_size(a->tokenizer),
                                     .sequence_length = a->seq,
                                     .held_out = held_out,
                                     .n_threads = (int)a->options->n_threads,
                                     .expected_hash = ablate_folder_data_hash(a)};
    dsmoe_error error;
    progress bar = progress_start("tokenizing", "bytes");
    dsmoe_status status = dsmoe_dataset_open(&options, show_progress, &bar, &a->dataset, &error);
    progress_finish(&bar);
    if (status == DSMOE_ERROR_FORMAT && options.expected_hash)
        return cli_failure("ablate", "%s; for other data name another --out", error.message);
    if (status != DSMOE_OK) return failure_or_interrupted(&error);
    cli_warn_of_files("ablate", dsmoe_dataset_files(a->dataset));
    return CLI_OK;
}

/* ---- training -------------------------------------------------------------------------------- */

static double run_gflop(const ablation *a, int entry)
{
    return a->entries[entry].parameters.flops * (double)(a->steps * a->batch) / 1e9;
}

/* What this call has to do. */
static void count_work(ablation *a)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        for (int seed = 0; seed < a->options->n_seeds; seed++) {
            if (!a->entries[i].is_selected || a->entries[i].runs[seed].is_finished) continue;
            a->n_runs++;
            a->gflop_total += run_gflop(a, i);
        }
}

typedef struct run_watch {
    ablation *a;
    int entry, seed;
    double gflop_before; /* done by this call when the run began */
    int64_t first_step;
} run_watch;

static void watch_event(void *context, const dsmoe_run_event *event)
{
    run_watch *watch = context;
    ablation *a = watch->a;
    double per_step = run_gflop(a, watch->entry) / (double)a->steps;
    switch (event->kind) {
    case DSMOE_RUN_START:
        watch->first_step = event->first_step;
        a->gflop_total -= per_step * (double)event->first_step; /* was done by an earlier call */
        break;
    case DSMOE_RUN_STEP:
        a->gflop_done = watch->gflop_before + per_step * (double)(event->step - watch->first_step);
        snprintf(a->label, sizeof a->label, "run %d of %d, %s seed %d, step %" PRId64 ", loss %.3f",
                 a->run, a->n_runs, architectures[watch->entry].name, watch->seed + 1, event->step,
                 event->loss);
        progress_update(&a->bar, a->gflop_done, a->gflop_total);
        break;
    case DSMOE_RUN_SKIP:
        progress_finish(&a->bar);
        fprintf(stderr, "%s, seed %d: %s\n", architectures[watch->entry].name, watch->seed + 1,
                event->text);
        break;
    default: break;
    }
}

/* What a run calls its settings, as they were typed. */
static const char *option_name(const char *key)
{
    static const char *const options[] = {"--data", "--tokenizer", "--steps", "--batch",
                                          "--seq",  "--lr",        "--out"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(key, options[i] + 2)) return options[i];
    return key;
}

static bool is_interrupted(void *context)
{
    (void)context;
    return cli_interrupted();
}

static int run_settings(const ablation *a, int entry, int seed, dsmoe_run_settings *s)
{
    char out[ABLATE_PATH], tokenizer[ABLATE_PATH], config[ABLATE_PATH];
    const char *name = architectures[entry].name;
    *s = dsmoe_run_settings_default();
    memcpy(s->data, a->data, sizeof s->data);
    snprintf(s->bad_bytes, sizeof s->bad_bytes, "%s", a->options->bad_bytes);
    if (!ablate_path(a, out, "runs/%s-seed%d", name, seed + 1) ||
        !ablate_path(a, tokenizer, "tokenizer") || !ablate_path(a, config, "configs/%s.json", name))
        return CLI_FAILURE;
    snprintf(s->out, sizeof s->out, "%.*s", DSMOE_PATH - 1, out);
    snprintf(s->tokenizer, sizeof s->tokenizer, "%.*s", DSMOE_PATH - 1,
             *a->tokenizer_path ? a->tokenizer_path : tokenizer);
    snprintf(s->config, sizeof s->config, "%.*s", DSMOE_PATH - 1, config);
    s->steps = a->steps;
    s->batch = a->batch;
    s->seq = a->seq;
    s->lr = a->choices.of[entry].lr;
    s->seed = seed + 1;
    s->held_out = held_out;
    s->eval_every = a->steps > N_EVALS ? a->steps / N_EVALS : 1;
    s->eval_sequences = EVAL_SEQUENCES;
    s->sample_every = 0;
    s->save_every = a->steps > 50 * N_SAVES ? a->steps / N_SAVES : 0;
    s->keep = 1;
    return CLI_OK;
}

/* A finished run is never gone on with: of its large files only the weights are of use now. */
static void remove_spent(const ablation *a, int entry, int seed)
{
    static const char *const names[] = {"latest/training.safetensors", "best/training.safetensors",
                                        "data.cache"};
    char path[ABLATE_PATH];
    for (int i = 0; i < 3; i++)
        if (ablate_path(a, path, "runs/%s-seed%d/%s", architectures[entry].name, seed + 1,
                        names[i]))
            unlink(path);
}

static int train(ablation *a, int entry, int seed)
{
    static const char *const moved[] = {"data"};             /* if it has */
    dsmoe_run_settings *settings = malloc(sizeof *settings); /* large for a stack */
    char saved[ABLATE_PATH], tokens[ABLATE_PATH];
    dsmoe_run_result result;
    dsmoe_error error;
    run_watch watch = {a, entry, seed, a->gflop_done, 0};
    dsmoe_run_options options = {.n_threads = (int)a->options->n_threads,
                                 .event = watch_event,
                                 .stop = is_interrupted,
                                 .setting_name = option_name,
                                 .tokens = tokens,
                                 .context = &watch};
    if (!ablate_path(a, tokens, "data.cache")) return CLI_FAILURE;
    if (!settings) return cli_failure("ablate", "not enough memory");
    a->run++;
    int exit_code = run_settings(a, entry, seed, settings);
    if (exit_code == CLI_OK &&
        !ablate_path(a, saved, "runs/%s-seed%d/settings.json", architectures[entry].name, seed + 1))
        exit_code = CLI_FAILURE;
    if (exit_code == CLI_OK && access(saved, F_OK) == 0) {
        options.resume = settings->out;
        options.given = moved;
        options.n_given = a->is_text_gone ? 0 : 1;
    }
    if (exit_code == CLI_OK) {
        dsmoe_status status = dsmoe_run(settings, &options, &result, &error);
        progress_finish(&a->bar);
        if (status != DSMOE_OK)
            exit_code = failure_or_interrupted(&error);
        else if (!result.finished)
            exit_code = CLI_INTERRUPTED;
    }
    free(settings);
    return exit_code;
}

/* One run from wherever it stands to its last loss. */
static int run_and_measure(ablation *a, int entry, int seed)
{
    ablate_run *run = &a->entries[entry].runs[seed];
    if (run->is_finished && ablate_is_measured(&a->entries[entry], seed)) return CLI_OK;
    double start = cli_seconds();
    bool trained = !run->is_finished;
    int exit_code = trained ? train(a, entry, seed) : CLI_OK;
    if (exit_code == CLI_OK) exit_code = ablate_folder_read_run(a, entry, seed);
    if (exit_code == CLI_OK) run->is_finished = true;
    if (exit_code == CLI_OK) exit_code = ablate_measure(a, entry, seed);
    if (exit_code == CLI_OK) {
        remove_spent(a, entry, seed);
        fprintf(stderr, "%s, seed %d: held-out loss %.4f (%.0f s)\n", architectures[entry].name,
                seed + 1, run->losses[LOSS_PLAIN], cli_seconds() - start);
    }
    int written = ablate_write(a);
    return exit_code != CLI_OK ? exit_code : written;
}

static void print_data(const ablation *a)
{
    dsmoe_dataset_info info = dsmoe_dataset_get_info(a->dataset);
    char all[TABLE_CELL], used[TABLE_CELL];
    double n_train = (double)(info.n_train ? info.n_train : 1);
    fprintf(stderr, "data: %s tokens, %" PRId64 " of %" PRId64 " sequences held out\n",
            number_group(info.n_tokens, all), info.n_held_out, info.n_held_out + info.n_train);
    fprintf(stderr, "%d run%s of %s tokens, %.2f times the data\n", a->n_runs,
            a->n_runs == 1 ? "" : "s", number_group(a->steps * a->batch * a->seq, used),
            (double)(a->steps * a->batch) / n_train);
}

/* All models of a seed before the next seed, so that there is something to compare early on. */
static int run_all(ablation *a)
{
    int exit_code = ablate_write(a);
    count_work(a);
    if (a->n_runs > 0) print_data(a);
    a->bar = progress_start(a->label, "GFLOP");
    for (int seed = 0; seed < a->options->n_seeds; seed++)
        for (int i = 0; exit_code == CLI_OK && i < N_ARCHITECTURES; i++)
            if (a->entries[i].is_selected) exit_code = run_and_measure(a, i, seed);
    return exit_code;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* A path of an option, absolute; "" stays. */
static int take_path(const char *given, char out[DSMOE_PATH])
{
    char path[PATH_MAX] = "";
    if (*given && !realpath(given, path))
        return cli_failure("ablate", "%s: no such file or folder", given);
    if (snprintf(out, DSMOE_PATH, "%s", path) >= DSMOE_PATH)
        return cli_failure("ablate", "%s: the path is too long", path);
    return CLI_OK;
}

/* Whether the folder has the tokens of its text, which may be gone then. */
static bool has_tokens(const ablation *a)
{
    char path[ABLATE_PATH];
    return ablate_folder_has_begun(a) && ablate_path(a, path, "data.cache") &&
           access(path, F_OK) == 0;
}

static int take_choices(ablation *a)
{
    dsmoe_error error;
    a->choices = choices_default(a->scale->lr);
    for (int i = 0; i < N_CHOICES; i++) {
        const option_words *words = &a->options->choices[i];
        if (choices_take(&a->choices, i, words->at, words->count, &error) != DSMOE_OK)
            return cli_usage("ablate", "--%s: %s", choice_names[i], error.message);
    }
    if (choices_settle(&a->choices, &error) == DSMOE_OK) return CLI_OK;
    return cli_usage("ablate", "%s", error.message);
}

/* The options as the comparison takes them: names found, paths absolute, defaults filled in. */
static int take_options(ablation *a)
{
    const ablate_options *o = a->options;
    a->scale = study_scale_find(o->scale);
    if (!a->scale)
        return cli_usage("ablate", "--scale must be tiny, small or medium, not '%s'", o->scale);
    if (names_find_bad_bytes("ablate", o->bad_bytes, &a->bad_bytes) != CLI_OK) return CLI_USAGE;
    a->steps = o->steps ? o->steps : a->scale->steps;
    a->batch = o->batch ? o->batch : a->scale->batch;
    a->seq = o->seq ? o->seq : a->scale->seq;
    a->vocab_size = o->vocab_size ? o->vocab_size : a->scale->vocab_size;
    if (take_choices(a) != CLI_OK) return CLI_USAGE;
    if ((double)a->steps * (double)a->batch * (double)a->seq > 1e15)
        return cli_usage("ablate", "--steps, --batch and --seq make too many tokens");
    a->n_seeds = (int)o->n_seeds;
    for (int i = 0; i < N_ARCHITECTURES; i++) {
        a->entries[i].model = &architectures[i];
        for (int seed = 0; seed < ABLATE_MAX_SEEDS; seed++)
            for (int which = 0; which < N_LOSSES; which++)
                a->entries[i].runs[seed].losses[which] = NAN;
    }
    if (snprintf(a->out, sizeof a->out, "%s", o->out) >= DSMOE_PATH)
        return cli_usage("ablate", "--out %s: the path is too long", o->out);
    if (take_path(o->tokenizer ? o->tokenizer : "", a->tokenizer_path) != CLI_OK)
        return CLI_FAILURE;
    for (; a->n_data < DSMOE_MAX_DATA && o->data[a->n_data]; a->n_data++) {
        const char *path = o->data[a->n_data];
        bool is_gone = access(path, F_OK) != 0 && has_tokens(a);
        if (is_gone)
            snprintf(a->data[a->n_data], DSMOE_PATH, "%s", path);
        else if (take_path(path, a->data[a->n_data]) != CLI_OK)
            return CLI_FAILURE;
        if (is_gone && !a->is_text_gone)
            cli_note("ablate", "%s is gone; going on with its tokens in %s/data.cache", path,
                     a->out);
        a->is_text_gone |= is_gone;
    }
    return select_models(a);
}

static int print_json(const ablation *a)
{
    char path[ABLATE_PATH], *text;
    size_t length;
    if (!ablate_path(a, path, "ablation.json")) return CLI_FAILURE;
    int exit_code = cli_read_file("ablate", path, &text, &length);
    if (exit_code != CLI_OK) return exit_code;
    fwrite(text, 1, length, stdout);
    free(text);
    return CLI_OK;
}

static int compare(ablation *a)
{
    int exit_code = take_options(a);
    if (exit_code == CLI_OK) exit_code = ablate_folder_open(a);
    if (exit_code == CLI_OK) exit_code = open_tokenizer(a);
    if (exit_code == CLI_OK) exit_code = open_dataset(a);
    if (exit_code == CLI_OK) exit_code = prepare_models(a);
    if (exit_code == CLI_OK) exit_code = ablate_folder_read(a);
    if (exit_code == CLI_OK) exit_code = run_all(a);
    if (exit_code != CLI_OK && exit_code != CLI_INTERRUPTED) ablate_folder_abandon(a);
    if (exit_code == CLI_INTERRUPTED)
        fprintf(stderr, "dsmoe ablate: stopped; the same command goes on from here\n");
    if (exit_code != CLI_OK) return exit_code;
    if (a->options->json) return print_json(a);
    ablate_print_tables(a);
    printf("\n%s/ablation.html shows the curves\n", a->out);
    return CLI_OK;
}

int command_ablate(int argc, char **argv)
{
    ablate_options options = {.scale = "tiny", .bad_bytes = "replace", .n_seeds = 3};
    option_words data = {options.data, DSMOE_MAX_DATA, 0};
    const char *choices[N_CHOICES][N_ARCHITECTURES + 1];
    for (int i = 0; i < N_CHOICES; i++)
        options.choices[i] = (option_words){choices[i], N_ARCHITECTURES + 1, 0};
    const option_row rows[] = {
        {"--data", NULL, OPTION_LIST, &data, 0, 0},
        {"--bad-bytes", NULL, OPTION_NAME, &options.bad_bytes, 0, 0},
        {"--out", NULL, OPTION_TEXT, &options.out, 0, 0},
        {"--tokenizer", NULL, OPTION_TEXT, &options.tokenizer, 0, 0},
        {"--scale", NULL, OPTION_NAME, &options.scale, 0, 0},
        {"--seeds", NULL, OPTION_INTEGER, &options.n_seeds, 1, ABLATE_MAX_SEEDS},
        {"--only", NULL, OPTION_NAME, &options.only, 0, 0},
        {"--all", NULL, OPTION_FLAG, &options.all, 0, 0},
        {"--steps", NULL, OPTION_INTEGER, &options.steps, 1, 1e9},
        {"--batch", NULL, OPTION_INTEGER, &options.batch, 1, CLI_MAX_BATCH},
        {"--seq", NULL, OPTION_INTEGER, &options.seq, 2, 1 << 20},
        {"--vocab-size", NULL, OPTION_INTEGER, &options.vocab_size, 258, 1 << 24},
        {"--lr", NULL, OPTION_LIST, &options.choices[0], 0, 0},
        {"--norm-topk-prob", NULL, OPTION_LIST, &options.choices[1], 0, 0},
        {"--routed-scaling-factor", NULL, OPTION_LIST, &options.choices[2], 0, 0},
        {"--balance", NULL, OPTION_LIST, &options.choices[3], 0, 0},
        {"--aux-loss-alpha", NULL, OPTION_LIST, &options.choices[4], 0, 0},
        {"--init-std", NULL, OPTION_LIST, &options.choices[5], 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &options.n_threads, 1, CLI_MAX_THREADS},
        {"--json", NULL, OPTION_FLAG, &options.json, 0, 0},
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
    if (options.tokenizer && options.vocab_size)
        return cli_usage("ablate", "--tokenizer and --vocab-size exclude each other");
    if (options.only && !*options.only) return cli_usage("ablate", "--only names no model");
    if (options.only && options.all)
        return cli_usage("ablate", "--only and --all exclude each other");
    ablation *a = calloc(1, sizeof *a);
    if (!a) return cli_failure("ablate", "not enough memory");
    a->options = &options;
    cli_catch_interrupt();
    cli_catch_broken_pipe();
    cli_answer_interrupt("stopping after this step, with a checkpoint; once more: at once");
    exit_code = compare(a);
    dsmoe_dataset_free(a->dataset);
    dsmoe_tokenizer_free(a->tokenizer);
    free(a);
    return exit_code;
}
