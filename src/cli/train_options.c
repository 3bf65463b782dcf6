/* train_options.c - the command line of `dsmoe train`. Every setting of a run is an option; both have
 * the same name, except for dashes. */
#include "cli/train_options.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model_path.h"
#include "cli/model_sizes.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/suggest.h"

static const char help[] =
    "usage: dsmoe train --data PATH --out DIR [options]\n"
    "       dsmoe train --resume DIR [options]\n"
    "\n"
    "Trains a DeepSeekMoE language model. DIR becomes a run: checkpoints that every other command\n"
    "takes as a model (DIR/best, DIR/latest), the settings, metrics.jsonl and events for TensorBoard,\n"
    "and report.html, which shows its progress. Ctrl-C saves and stops; --resume continues from there\n"
    "and gives the same model, bit for bit, as a run that was never stopped.\n"
    "\n"
    "      --data PATH            text, .jsonl with a text or a conversation on each line, token shards\n"
    "                             (.bin), or a folder of them; may be given several times\n"
    "      --show-data N          print the first N sequences, mark what is learned, and exit; nothing\n"
    "                             is written\n"
    "      --bad-bytes NAME       for bytes that are not UTF-8: replace (by U+FFFD, default), keep, or\n"
    "                             skip the files that have any; binary files are always left out\n"
    "      --out DIR              the folder of the run: new or empty, apart from what the run reads\n"
    "      --settings FILE        settings from a file, such as another run's settings.json; options\n"
    "                             on the command line override them\n"
    "      --resume DIR           continue a run with its settings; options given here replace them,\n"
    "                             except those that would make it another run (the model, --seq,\n"
    "                             --seed, --held-out, --bad-bytes, --out)\n"
    "      --stop-after N         stop with a checkpoint after N steps in all\n"
    "      --time-limit TIME      stop with a checkpoint after the step in which TIME has passed: 90\n"
    "                             (seconds), 45m, 2h30m\n"
    "  -t, --threads N            threads (all processors); does not change the result\n"
    "      --parallel WAY         what the ranks started by mpirun divide: data (default), the\n"
    "                             batches of a step and the optimizer's work; experts, the routed\n"
    "                             experts as well, for models that one machine cannot hold; does not\n"
    "                             change the result\n"
    "      --peer-timeout TIME    give up if a rank that others wait for shows no sign of life for TIME\n"
    "                             (10m; 0: never)\n"
    "      --quiet                print no progress, only errors and warnings\n"
    "\n"
    "the model:\n"
    "      --preset NAME          tiny (default), 2b, 16b; with latent attention tiny-v2, tiny-v3,\n"
    "                             v2-lite, moonlight\n"
    "      --config PATH          a config.json of your own, or the folder or run that has one\n"
    "      --init PATH            start from the weights of a model: its folder, a training run or a\n"
    "                             .gguf file\n"
    "      --tokenizer PATH       a tokenizer.json, its folder or a .gguf file (default: that of --init,\n"
    "                             or one trained on the data)\n"
    "      --vocab-size N         tokens of a tokenizer trained here (8192, or what the text allows)\n"
    "      --init-std X           standard deviation of the initial weights (the configuration's)\n"
    "\n"
    "its sizes, where they differ from those of --preset or --config:\n" MODEL_SIZES_HELP "\n"
    "which part of --init is trained:\n"
    "      --train WHAT           all (default); experts, some of the routed ones; or lora, low-rank\n"
    "                             additions. The rest stays as it is, in any type of a .gguf file\n"
    "      --rank N               rank of the low-rank additions (16)\n"
    "      --alpha X              their scale is alpha / rank (32)\n"
    "      --rslora               their scale is alpha / the square root of rank\n"
    "      --targets WORDS        matrices that get them: attention, shared, dense, routed, or names such\n"
    "                             as q_proj, separated by commas (attention,shared,dense)\n"
    "      --expert-score NAME    choose the best experts of each layer on a sample of the data, by gate\n"
    "                             (default) or token score,\n"
    "      --expert-share X       until their scores add up to X (0.1 for gate, 0.2 for token)\n"
    "      --experts FILE         read the experts from a file that dsmoe inspect --experts-out wrote\n"
    "      --memory GB            memory that training may take, model included (default: what is\n"
    "                             available); layers whose activations do not fit are run twice\n"
    "\n"
    "learning:\n"
    "      --steps N              steps in all (1000)\n"
    "      --batch N              sequences per batch (8)\n"
    "      --seq N                tokens per sequence (256)\n"
    "      --accumulate N         batches per step (1)\n"
    "      --lr X                 highest learning rate (0.001)\n"
    "      --schedule NAME        step (the paper's, default), cosine or constant\n"
    "      --warmup N             steps up to the highest rate (a twentieth of all, at most 2000)\n"
    "      --weight-decay X       of AdamW, on matrices (0.1)\n"
    "      --beta1 X, --beta2 X, --eps X   of AdamW (0.9, 0.95, 1e-8)\n"
    "      --clip X               largest norm of the gradient; 0: no limit (1)\n"
    "      --aux-loss-alpha X     expert-level balance factor (the configuration's)\n"
    "      --device-groups N      groups of experts for the device-level balance loss (0: none)\n"
    "      --device-loss-alpha X  its factor (0.05)\n"
    "      --bias-speed X         how far a step moves the biases of gates with topk_method noaux_tc\n"
    "                             towards an even load (0.001; 0: not at all)\n"
    "      --recompute            less memory for activations, a third more time (--no-recompute turns\n"
    "                             it off in a resumed run)\n"
    "  -s, --seed N               seed of the initial weights and of the order of the data (0)\n"
    "\n"
    "conversations (\"messages\", \"conversations\", \"prompt\" and \"completion\", \"instruction\" and\n"
    "\"output\"; docs/tune.md):\n"
    "      --chat-form NAME       the frame around them (the model's own): deepseek, chatml, alpaca, ...\n"
    "      --train-on NAME        what is learned: answers (default), or all\n"
    "      --too-long NAME        what to do with those longer than --seq: cut (default) or drop\n"
    "      --unpacked             one conversation per sequence, instead of as many as fit\n"
    "\n"
    "preferences (\"prompt\", \"chosen\" and \"rejected\"; with --train lora):\n"
    "      --dpo-beta X           beta of DPO: a smaller one lets the model move further away (0.1)\n"
    "\n"
    "watching it:\n"
    "      --held-out X           share of the data that is never learned from (0.05)\n"
    "      --eval-data PATH       text that is held out instead of that share; may be given several\n"
    "                             times\n"
    "      --eval-every N         steps between evaluations of it (100; 0: never)\n"
    "      --eval-sequences N     sequences of it that are used (64; 0: all)\n"
    "      --patience N           stop when N evaluations in a row have not improved on the best (0:\n"
    "                             never)\n"
    "      --sample-every N       steps between texts that the model writes (250; 0: never)\n"
    "      --sample-tokens N      tokens of such a text (64)\n"
    "      --sample-prompt TEXT   the text that it continues\n"
    "      --save-every N         steps between checkpoints (250; 0: at the end only)\n"
    "      --keep N               last checkpoints to keep, besides the best (2)\n"
    "      --dtype NAME           type of their weights: f32 (default), f16 or bf16; resuming is exact\n"
    "                             with all of them\n"
    "      --log-every N          steps between lines of the log (10)\n"
    "      --report-every N       refresh the report every N steps, at most 4 times a minute (10)\n"
    "  -h, --help                 this text\n"
    "\n"
    "examples:\n"
    "  dsmoe train --data notes/ --out runs/notes --steps 2000\n"
    "  dsmoe train --resume runs/notes\n"
    "  dsmoe generate -m runs/notes/best -p \"Once upon a time\"\n";

/* Static, because the settings are large and there is only one command line. */
static struct {
    train_options options;
    const char *data_at[DSMOE_MAX_DATA];
    const char *eval_data_at[DSMOE_MAX_DATA];
    option_words data, eval_data;
    const char *settings_file;
} line = {.options.peer_timeout = RANKS_PATIENCE};

#define SETTING(name) &line.options.settings.name
#define PLACE(name) line.options.settings.name, 0, sizeof line.options.settings.name
#define FIELD(name) OPTION_FIELD, PLACE(name)
#define PATH(name) OPTION_PATH_FIELD, PLACE(name)
#define NAME(name) OPTION_NAME_FIELD, PLACE(name)

enum { MANY = 1000000000 }; /* steps */
/* Values of settings are stored directly in line.options.settings. */
static const option_row own_rows[] = {
    {"--data", NULL, OPTION_PATH_LIST, &line.data, 0, 0},
    {"--eval-data", NULL, OPTION_PATH_LIST, &line.eval_data, 0, 0},
    {"--bad-bytes", NULL, NAME(bad_bytes)},
    {"--chat-form", NULL, NAME(chat_form)},
    {"--train-on", NULL, NAME(train_on)},
    {"--too-long", NULL, NAME(too_long)},
    {"--unpacked", NULL, OPTION_FLAG, SETTING(unpacked), 0, 0},
    {"--dpo-beta", NULL, OPTION_NUMBER, SETTING(dpo_beta), 1e-6, 1000},
    {"--show-data", NULL, OPTION_INTEGER, &line.options.show_data, 1, MANY},
    {"--out", NULL, PATH(out)},
    {"--settings", NULL, OPTION_PATH, &line.settings_file, 0, 0},
    {"--resume", NULL, OPTION_PATH, &line.options.resume, 0, 0},
    {"--stop-after", NULL, OPTION_INTEGER, &line.options.stop_after, 1, MANY},
    {"--time-limit", NULL, OPTION_DURATION, &line.options.time_limit, 0, 1e9},
    {"--threads", "-t", OPTION_INTEGER, &line.options.n_threads, 1, CLI_MAX_THREADS},
    {"--parallel", NULL, OPTION_TEXT, &line.options.parallel_name, 0, 0},
    {"--peer-timeout", NULL, OPTION_DURATION, &line.options.peer_timeout, -1, RANKS_MOST_PATIENCE},
    {"--quiet", NULL, OPTION_FLAG, &line.options.quiet, 0, 0},
    {"--preset", NULL, NAME(preset)},
    {"--config", NULL, PATH(config)},
    {"--init", NULL, PATH(init)},
    {"--tokenizer", NULL, PATH(tokenizer)},
    {"--vocab-size", NULL, OPTION_INTEGER, SETTING(vocab_size), 258, 1 << 24},
    {"--init-std", NULL, OPTION_NUMBER, SETTING(init_std), 0, 10},
    {"--steps", NULL, OPTION_INTEGER, SETTING(steps), 1, MANY},
    {"--batch", NULL, OPTION_INTEGER, SETTING(batch), 1, 65536},
    {"--seq", NULL, OPTION_INTEGER, SETTING(seq), 1, 1 << 20},
    {"--accumulate", NULL, OPTION_INTEGER, SETTING(accumulate), 1, 65536},
    {"--lr", NULL, OPTION_NUMBER, SETTING(lr), 0, 10},
    {"--schedule", NULL, NAME(schedule)},
    {"--warmup", NULL, OPTION_INTEGER, SETTING(warmup), 0, MANY},
    {"--weight-decay", NULL, OPTION_NUMBER, SETTING(weight_decay), 0, 0.999999},
    {"--beta1", NULL, OPTION_NUMBER, SETTING(beta1), 0, 0.999999},
    {"--beta2", NULL, OPTION_NUMBER, SETTING(beta2), 0, 0.999999},
    {"--eps", NULL, OPTION_NUMBER, SETTING(eps), 1e-30, 1},
    {"--clip", NULL, OPTION_NUMBER, SETTING(clip), 0, 1e6},
    {"--aux-loss-alpha", NULL, OPTION_NUMBER, SETTING(aux_loss_alpha), 0, 1000},
    {"--device-groups", NULL, OPTION_INTEGER, SETTING(device_groups), 0, 65536},
    {"--device-loss-alpha", NULL, OPTION_NUMBER, SETTING(device_loss_alpha), 0, 1000},
    {"--bias-speed", NULL, OPTION_NUMBER, SETTING(bias_speed), 0, 10},
    {"--recompute", NULL, OPTION_FLAG, SETTING(recompute), 0, 0},
    {"--no-recompute", NULL, OPTION_OFF, SETTING(recompute), 0, 0},
    {"--train", NULL, NAME(train)},
    {"--rank", NULL, OPTION_INTEGER, SETTING(rank), 1, 256},
    {"--alpha", NULL, OPTION_NUMBER, SETTING(alpha), 1e-6, 1e6},
    {"--rslora", NULL, OPTION_FLAG, SETTING(rslora), 0, 0},
    {"--targets", NULL, FIELD(targets)},
    {"--expert-score", NULL, NAME(expert_score)},
    {"--expert-share", NULL, OPTION_NUMBER, SETTING(expert_share), 0, 1},
    {"--experts", NULL, PATH(experts)},
    {"--memory", NULL, OPTION_NUMBER, SETTING(memory), 0, 1e6},
    {"--seed", "-s", OPTION_INTEGER, SETTING(seed), 0, 0x1p53},
    {"--held-out", NULL, OPTION_NUMBER, SETTING(held_out), 0, 0.9},
    {"--eval-every", NULL, OPTION_INTEGER, SETTING(eval_every), 0, MANY},
    {"--eval-sequences", NULL, OPTION_INTEGER, SETTING(eval_sequences), 0, MANY},
    {"--patience", NULL, OPTION_INTEGER, SETTING(patience), 0, MANY},
    {"--sample-every", NULL, OPTION_INTEGER, SETTING(sample_every), 0, MANY},
    {"--sample-tokens", NULL, OPTION_INTEGER, SETTING(sample_tokens), 0, 1 << 20},
    {"--sample-prompt", NULL, FIELD(sample_prompt)},
    {"--save-every", NULL, OPTION_INTEGER, SETTING(save_every), 0, MANY},
    {"--keep", NULL, OPTION_INTEGER, SETTING(keep), 1, 1e6},
    {"--dtype", NULL, NAME(dtype)},
    {"--log-every", NULL, OPTION_INTEGER, SETTING(log_every), 1, MANY},
    {"--report-every", NULL, OPTION_INTEGER, SETTING(report_every), 1, MANY},
};
enum {
    N_OWN_ROWS = sizeof own_rows / sizeof *own_rows,
    N_ROWS = N_OWN_ROWS + MODEL_SIZES_ROWS,
};
static option_row rows[N_ROWS]; /* own_rows, and the sizes of the model */

static const option_rule rules[] = {
    {"--settings", OPTION_EXCLUDES, "--resume"},
    {"--config", OPTION_EXCLUDES, "--preset"},
    {"--config", OPTION_EXCLUDES, "--init"},
    {"--preset", OPTION_EXCLUDES, "--init"},
    {"--vocab-size", OPTION_EXCLUDES, "--tokenizer"},
    {"--vocab-size", OPTION_EXCLUDES, "--init"},
    {"--init-std", OPTION_EXCLUDES, "--init"},
    {"--expert-score", OPTION_EXCLUDES, "--experts"}, /* in this order, as both have defaults */
    {"--expert-share", OPTION_EXCLUDES, "--experts"},
    {"--layers", OPTION_EXCLUDES, "--init"},
    {"--hidden", OPTION_EXCLUDES, "--init"},
    {"--heads", OPTION_EXCLUDES, "--init"},
    {"--kv-heads", OPTION_EXCLUDES, "--init"},
    {"--moe", OPTION_EXCLUDES, "--init"},
    {"--routed", OPTION_EXCLUDES, "--init"},
    {"--shared", OPTION_EXCLUDES, "--init"},
    {"--k", OPTION_EXCLUDES, "--init"},
    {"--dense-layers", OPTION_EXCLUDES, "--init"},
    {"--ffn", OPTION_EXCLUDES, "--init"},
    {"--held-out", OPTION_EXCLUDES, "--eval-data"},
    {"--show-data", OPTION_EXCLUDES, "--stop-after"},
    {"--show-data", OPTION_EXCLUDES, "--time-limit"},
    {"--device-loss-alpha", OPTION_NEEDS, "--device-groups"},
    {"--eval-every", OPTION_NEEDS, "--held-out"},
    {"--eval-sequences", OPTION_NEEDS, "--held-out"},
    {"--eval-sequences", OPTION_NEEDS, "--eval-every"},
    {"--patience", OPTION_NEEDS, "--held-out"},
    {"--patience", OPTION_NEEDS, "--eval-every"},
    {"--sample-every", OPTION_NEEDS, "--sample-tokens"},
    {"--sample-tokens", OPTION_NEEDS, "--sample-every"},
    {"--sample-prompt", OPTION_NEEDS, "--sample-every"},
    {"--sample-prompt", OPTION_NEEDS, "--sample-tokens"},
};
enum { N_RULES = sizeof rules / sizeof *rules };

/* ---- options and keys ------------------------------------------------------------------------ */

enum { KEY_BYTES = 40 };

/* "--eval-every" as "eval_every", "--no-recompute" as "recompute", "--hidden" as "hidden_size". */
static void make_key(const option_row *row, char key[KEY_BYTES])
{
    const char *size = model_sizes_key(row->name);
    snprintf(key, KEY_BYTES, "%s",
             size ? size : row->name + strlen(row->kind == OPTION_OFF ? "--no-" : "--"));
    for (char *at = key; *at; at++)
        if (*at == '-') *at = '_';
}

const char *train_options_name(const char *key)
{
    char own[KEY_BYTES];
    for (int i = 0; i < N_ROWS; i++) {
        make_key(&rows[i], own);
        if (!strcmp(own, key)) return rows[i].name;
    }
    return key;
}

/* Whether an option is a setting of the run, not only of the command. */
static bool is_setting(const option_row *row)
{
    return row->value != &line.settings_file && row->value != &line.options.resume &&
           row->value != &line.options.stop_after && row->value != &line.options.show_data &&
           row->value != &line.options.n_threads && row->value != &line.options.time_limit &&
           row->value != &line.options.peer_timeout && row->value != &line.options.quiet &&
           row->value != &line.options.parallel_name;
}

static void list_given(const bool given[N_ROWS])
{
    static char keys[N_ROWS][KEY_BYTES];
    static const char *list[N_ROWS];
    train_options *o = &line.options;
    o->given = list;
    for (int i = 0; i < N_ROWS; i++) {
        if (!given[i] || !is_setting(&rows[i])) continue;
        make_key(&rows[i], keys[o->n_given]);
        list[o->n_given] = keys[o->n_given];
        o->n_given++;
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

static int parse(int argc, char **argv, bool given[N_ROWS])
{
    line.data = (option_words){line.data_at, DSMOE_MAX_DATA, 0};
    line.eval_data = (option_words){line.eval_data_at, DSMOE_MAX_DATA, 0};
    return options_parse_given("train", help, rows, N_ROWS, argc, argv, NULL, given);
}

static bool is_given(const bool given[N_ROWS], const char *name)
{
    for (int i = 0; i < N_ROWS; i++)
        if (!strcmp(rows[i].name, name)) return given[i];
    return false;
}

/* Reads the settings that the command line overrides: of a file, of a run, or the defaults. */
static int read_settings(const bool given[N_ROWS])
{
    dsmoe_run_settings *s = &line.options.settings;
    dsmoe_error error;
    char path[DSMOE_PATH + 32];
    *s = dsmoe_run_settings_default();
    line.options.settings_file = line.settings_file;
    snprintf(path, sizeof path, "%s/settings.json", line.options.resume ? line.options.resume : "");
    if (line.options.resume)
        dsmoe_run_settings_read(path, s, NULL); /* the run reports what is wrong with them */
    else if (line.settings_file && dsmoe_run_settings_read(line.settings_file, s, &error))
        return cli_failure("train", "%s", error.message);
    if (is_given(given, "--config") || is_given(given, "--preset") || is_given(given, "--init")) {
        *s->config = *s->preset = *s->init = '\0'; /* one of them says what the model is */
        s->model = dsmoe_model_sizes_default();
    }
    return -1;
}

static int set_paths(const char *option, const option_words *given, char paths[][DSMOE_PATH])
{
    if (given->count > 0) memset(paths, 0, (size_t)DSMOE_MAX_DATA * DSMOE_PATH);
    for (int i = 0; i < given->count; i++) {
        if (strlen(given->at[i]) >= DSMOE_PATH)
            return cli_usage("train", "%s has more than %d bytes", option, DSMOE_PATH - 1);
        strcpy(paths[i], given->at[i]);
    }
    return -1;
}

/* Options for one part of a model are wrong if another part is trained. */
static int check_part(const bool given[N_ROWS])
{
    static const char *const parts[] = {"all", "experts", "lora"}, *const scores[] = {"gate",
                                                                                      "token"};
    static const struct {
        const char *option, *part;
    } needs[] = {
        {"--rank", "lora"},      {"--alpha", "lora"},           {"--rslora", "lora"},
        {"--targets", "lora"},   {"--expert-score", "experts"}, {"--expert-share", "experts"},
        {"--experts", "experts"}};
    const dsmoe_run_settings *s = &line.options.settings;
    if (suggest_choice("train", "--train", s->train, parts, 3) < 0 ||
        suggest_choice("train", "--expert-score", s->expert_score, scores, 2) < 0)
        return CLI_USAGE;
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (is_given(given, needs[i].option) && strcmp(s->train, needs[i].part))
            return cli_usage("train", "%s has no effect without --train %s", needs[i].option,
                             needs[i].part);
    if (is_given(given, "--memory") && !strcmp(s->train, "all"))
        return cli_usage("train", "--memory has no effect without --train experts or lora");
    if (strcmp(s->train, "all") && !*s->init && !line.options.resume)
        return cli_usage(
            "train", "--train %s trains a part of a model: name that model with --init", s->train);
    return -1;
}

static int check(const bool given[N_ROWS])
{
    const dsmoe_run_settings *s = &line.options.settings;
    int exit_code = options_check("train", rows, N_ROWS, given, rules, N_RULES);
    if (exit_code >= 0) return exit_code;
    if (names_check_schedule("train", s->schedule) != CLI_OK) return CLI_USAGE;
    exit_code = check_part(given);
    if (exit_code >= 0) return exit_code;
    if (is_given(given, "--preset") && names_check_preset("train", s->preset) != CLI_OK)
        return CLI_USAGE;
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    if (suggest_choice("train", "--dtype", s->dtype, dtypes, 3) < 0) return CLI_USAGE;
    static const char *const learnt[] = {"answers", "all"}, *const ways[] = {"cut", "drop"};
    if (suggest_choice("train", "--train-on", s->train_on, learnt, 2) < 0) return CLI_USAGE;
    if (suggest_choice("train", "--too-long", s->too_long, ways, 2) < 0) return CLI_USAGE;
    dsmoe_bad_bytes bad_bytes;
    if (names_find_bad_bytes("train", s->bad_bytes, &bad_bytes) != CLI_OK) return CLI_USAGE;
    if (line.options.resume) return -1;
    if (!*s->data[0])
        return cli_usage("train",
                         "no text to learn from: name a file or a folder with --data PATH");
    if (!*s->out)
        return cli_usage(
            "train", "no folder for the run: name one with --out DIR, such as --out runs/first");
    return -1;
}

/* If --init or --config names a run, its latest checkpoint is taken. */
static int find_run(const bool given[N_ROWS], const char *option, char field[DSMOE_PATH])
{
    model_path found;
    const char *path = field;
    if (!is_given(given, option)) return -1;
    int exit_code = model_path_find("train", &path, &found);
    if (exit_code != CLI_OK || path == field) return exit_code == CLI_OK ? -1 : exit_code;
    if (strlen(path) >= DSMOE_PATH) return cli_usage("train", "%s: the path is too long", option);
    memset(field, 0, DSMOE_PATH);
    memcpy(field, path, strlen(path));
    return -1;
}

/* The command line is read twice: once to find settings that it names, then to override them. A rank other
 * than the first has no files and needs no settings. */
int train_options_parse(int argc, char **argv, train_options *options)
{
    bool given[N_ROWS];
    memcpy(rows, own_rows, sizeof own_rows);
    model_sizes_rows(SETTING(model), rows + N_OWN_ROWS);
    int exit_code = parse(argc, argv, given);
    train_options *o = &line.options;
    if (exit_code < 0 && names_find_parallel("train", o->parallel_name, &o->parallel) != CLI_OK)
        return CLI_USAGE;
    if (exit_code < 0 && ranks_follows()) {
        *options = line.options;
        return -1;
    }
    if (exit_code < 0) exit_code = read_settings(given);
    if (exit_code < 0) exit_code = parse(argc, argv, given);
    dsmoe_run_settings *s = &line.options.settings;
    if (exit_code < 0) exit_code = set_paths("--data", &line.data, s->data);
    if (exit_code < 0) exit_code = set_paths("--eval-data", &line.eval_data, s->eval_data);
    if (exit_code < 0) exit_code = check(given);
    if (exit_code < 0) exit_code = find_run(given, "--init", line.options.settings.init);
    if (exit_code < 0) exit_code = find_run(given, "--config", line.options.settings.config);
    if (exit_code >= 0) return exit_code;
    list_given(given);
    *options = line.options;
    return -1;
}
