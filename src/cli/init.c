/* init.c - `dsmoe init`: writes a freshly initialised model. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/conversion.h"
#include "cli/model_path.h"
#include "cli/model_sizes.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/table.h"

static const char help[] =
    "usage: dsmoe init --preset NAME | --config FILE [options] DIR\n"
    "       dsmoe init --preset NAME | --config FILE [options] FILE.gguf\n"
    "\n"
    "Writes a model with fresh random weights to a folder that is new or empty (or holds only a\n"
    "tokenizer, which becomes the model's), in the layout of the released model: config.json,\n"
    "generation_config.json and safetensors of at most 5 GB each; or, if the name ends with .gguf, to\n"
    "a GGUF file of any type. The same seed gives the same bits on every machine, and a layer is the\n"
    "same whatever the number of layers. Weights of quantised types are drawn from a stock of blocks,\n"
    "which is much faster than quantising them all, and just as random.\n"
    "\n"
    "      --preset NAME     tiny       4 layers, 1 + 63 experts, top-7: a small model for experiments\n"
    "                        2b         the paper's validation model\n"
    "                        16b        the released model\n"
    "                        tiny-v2    about the size of tiny, with the latent attention of V2-Lite\n"
    "                        tiny-v3    the same with the gate of V3: sigmoids, groups, a bias\n"
    "                        v2-lite    DeepSeek-V2-Lite; Coder-V2-Lite is the same\n"
    "                        moonlight  Moonlight-16B-A3B\n"
    "      --config PATH     a config.json of your own, or the folder or training run that has one\n"
    "      --type TYPE       f32, f16 or bf16 (default); for a .gguf file also the types of dsmoe\n"
    "                        quantize (--dtype is the same)\n"
    "  -s, --seed N          another seed gives different weights (0)\n"
    "      --tokenizer PATH  a tokenizer.json, or the folder that has one, to copy to DIR or\n"
    "                        FILE.gguf, where other programs may need one; its BOS and EOS\n"
    "                        become the model's\n"
    "      --force           " OUTPUT_FORCE_HELP "\n"
    "                        or a folder\n"
    "  -t, --threads N       threads to use (default: all processors)\n"
    "  -h, --help            this text\n"
    "\n"
    "its sizes, where they differ from those of --preset or --config:\n" MODEL_SIZES_HELP
    "      --vocab-size N         vocab_size\n"
    "\n"
    "Ctrl-C removes what was written.\n"
    "\n"
    "examples: one dense and three MoE layers of the released model's size, 4.5 GB; and all of it\n"
    "in 10 GB\n"
    "  dsmoe init --preset 16b --layers 4 --tokenizer deepseek-moe-16b-base four-layers\n"
    "  dsmoe init --preset 16b --type q4_k --tokenizer deepseek-moe-16b-base moe-16b.gguf\n";

enum { N_TOKENIZER_FILES = 3 };
static const char *const tokenizer_files[N_TOKENIZER_FILES] = {
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"};

typedef struct init_command {
    const char *preset, *config_path, *dtype_name, *tokenizer, *folder;
    model_path found; /* the checkpoint of a run that --config names */
    int64_t vocab_size, seed, n_threads;
    dsmoe_model_sizes sizes;
    dsmoe_config config;
    dsmoe_dtype dtype;
    int64_t n_parameters;
    double bytes;
    bool force;
    /* What is removed if a later step fails. */
    bool made_folder, copied[N_TOKENIZER_FILES];
} init_command;

/* ---- options ------------------------------------------------------------------------------- */

/* FOLDER/NAME in a string to free(). */
static char *path_in(const char *folder, const char *name)
{
    char *path;
    const char *slash = folder[0] && folder[strlen(folder) - 1] == '/' ? "" : "/";
    return asprintf(&path, "%s%s%s", folder, slash, name) < 0 ? NULL : path;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The preset or configuration, for messages. */
static const char *source(const init_command *c) { return c->preset ? c->preset : c->config_path; }

static int parse_options(init_command *c, int argc, char **argv)
{
    const option_row own[] = {
        {"--preset", NULL, OPTION_NAME, &c->preset, 0, 0},
        {"--config", NULL, OPTION_PATH, &c->config_path, 0, 0},
        {"--vocab-size", NULL, OPTION_INTEGER, &c->vocab_size, 1, 1 << 24},
        {"--type", NULL, OPTION_NAME, &c->dtype_name, 0, 0},
        {"--dtype", NULL, OPTION_NAME, &c->dtype_name, 0, 0},
        {"--seed", "-s", OPTION_INTEGER, &c->seed, 0, 0x1p63},
        {"--tokenizer", NULL, OPTION_PATH, &c->tokenizer, 0, 0},
        {"--force", NULL, OPTION_FLAG, &c->force, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &c->n_threads, 1, CLI_MAX_THREADS}};
    enum { N_OWN = sizeof own / sizeof *own, N_ROWS = N_OWN + MODEL_SIZES_ROWS };
    static const option_rule rules[] = {{"--config", OPTION_EXCLUDES, "--preset"}};
    option_row rows[N_ROWS];
    bool given[N_ROWS];
    option_words words = {&c->folder, 1, 0};
    memcpy(rows, own, sizeof own);
    model_sizes_rows(&c->sizes, rows + N_OWN);
    int exit_code = options_parse_given("init", help, rows, N_ROWS, argc, argv, &words, given);
    return exit_code >= 0 ? exit_code : options_check("init", rows, N_ROWS, given, rules, 1);
}

/* Takes the preset or the file, then the sizes. */
static int make_config(init_command *c)
{
    dsmoe_error error;
    if (!c->config_path && names_check_preset("init", c->preset) != CLI_OK) return CLI_USAGE;
    if (!c->config_path && dsmoe_config_preset(c->preset, &c->config, &error) != DSMOE_OK)
        return cli_usage("init", "--preset: %s", error.message);
    if (c->config_path && model_path_find("init", &c->config_path, &c->found) != CLI_OK)
        return CLI_FAILURE;
    char *path = c->config_path && is_folder(c->config_path)
                     ? path_in(c->config_path, "config.json")
                     : strdup(c->config_path ? c->config_path : "");
    if (!path) return cli_failure("init", "not enough memory");
    dsmoe_status status = c->config_path ? dsmoe_config_read(path, &c->config, &error) : DSMOE_OK;
    free(path);
    if (status != DSMOE_OK) return cli_failure("init", "%s", error.message);
    if (c->vocab_size) c->config.vocab_size = c->vocab_size;
    if (c->config.bos_token_id >= c->config.vocab_size) c->config.bos_token_id = -1;
    if (c->config.eos_token_id >= c->config.vocab_size) c->config.eos_token_id = -1;
    return model_sizes_apply("init", &c->sizes, &c->config);
}

static int parse(init_command *c, int argc, char **argv)
{
    int exit_code = parse_options(c, argc, argv);
    if (exit_code >= 0) return exit_code;
    if (!c->preset && !c->config_path)
        return cli_usage(
            "init",
            "no model: name one with --preset (tiny, 2b, 16b, v2-lite …) or a file with --config");
    if (!c->folder)
        return cli_usage("init",
                         "no place for the model: name a new folder or a .gguf file at the end");
    for (c->dtype = DSMOE_F32; c->dtype <= DSMOE_BF16; c->dtype++)
        if (!strcmp(c->dtype_name, dsmoe_dtype_name(c->dtype))) break;
    if (c->dtype > DSMOE_BF16 && !conversion_to_gguf(c->folder))
        return cli_usage("init",
                         "--type must be f32, f16 or bf16, not '%s', unless a .gguf file is "
                         "written",
                         c->dtype_name);
    if (names_check_type("init", c->dtype_name) != CLI_OK) return CLI_USAGE;
    return make_config(c);
}

/* A tokenizer that is already in the folder counts as given. */
static void find_tokenizer(init_command *c)
{
    char *path = path_in(c->folder, tokenizer_files[0]);
    if (path && !c->tokenizer && access(path, F_OK) == 0) c->tokenizer = c->folder;
    free(path);
}

/* Checks that the tokenizer can be opened and fits; its BOS and EOS become the model's. */
static int use_tokenizer(init_command *c)
{
    find_tokenizer(c);
    if (!c->tokenizer) return CLI_OK;
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (dsmoe_tokenizer_open(c->tokenizer, &tokenizer, &error) != DSMOE_OK)
        return cli_failure("init", "%s", error.message);
    long long size = dsmoe_tokenizer_size(tokenizer);
    int32_t bos = dsmoe_tokenizer_bos(tokenizer), eos = dsmoe_tokenizer_eos(tokenizer);
    dsmoe_tokenizer_free(tokenizer);
    if (size > c->config.vocab_size)
        return cli_failure("init",
                           "%s: the tokenizer has %lld tokens, more than the vocab_size %lld of "
                           "%s; --vocab-size sets another one",
                           c->tokenizer, size, (long long)c->config.vocab_size, source(c));
    if (bos >= 0) c->config.bos_token_id = bos;
    if (eos >= 0) c->config.eos_token_id = eos;
    if (conversion_to_gguf(c->tokenizer) && !conversion_to_gguf(c->folder))
        return cli_usage("init",
                         "--tokenizer %s: a folder takes a tokenizer.json, not a .gguf file",
                         c->tokenizer);
    return CLI_OK;
}

/* Computes how large the model will be. */
static int measure(init_command *c)
{
    dsmoe_model_plan plan;
    dsmoe_error error;
    if (dsmoe_model_plan_make(&c->config, 1, &plan, &error) != DSMOE_OK)
        return cli_failure("init", "%s", error.message);
    c->n_parameters = plan.total;
    c->bytes = (double)plan.total * (c->dtype == DSMOE_F32 ? 4 : 2);
    return CLI_OK;
}

/* ---- the folder and what is copied into it --------------------------------------------------- */

static void clean_up(const init_command *c)
{
    for (int i = 0; i < N_TOKENIZER_FILES; i++) {
        char *path = c->copied[i] ? path_in(c->folder, tokenizer_files[i]) : NULL;
        if (path) unlink(path);
        free(path);
    }
    if (c->made_folder) rmdir(c->folder);
}

static int make_folder(init_command *c)
{
    int exit_code = output_check_folder("init", c->folder, tokenizer_files, N_TOKENIZER_FILES);
    if (exit_code != CLI_OK) return exit_code;
    c->made_folder = mkdir(c->folder, 0777) == 0;
    if (!c->made_folder && errno != EEXIST)
        return cli_failure("init", "%s: cannot create the folder: %s", c->folder, strerror(errno));
    return CLI_OK;
}

/* Writes a file that must be new; *created says whether it exists now, perhaps incomplete. */
static int write_new_file(const char *path, const char *text, size_t length, bool *created)
{
    FILE *file = fopen(path, "wx");
    if (!file) return cli_failure("init", "%s: cannot create the file: %s", path, strerror(errno));
    *created = true;
    bool written =
        fwrite(text, 1, length, file) == length && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int reason = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        reason = errno;
    }
    if (written) return CLI_OK;
    return cli_failure("init", "%s: cannot write the file: %s", path, strerror(reason));
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int copy_tokenizer_file(init_command *c, int which)
{
    const char *name = tokenizer_files[which];
    char *from = is_folder(c->tokenizer) ? path_in(c->tokenizer, name) : strdup(c->tokenizer);
    char *to = path_in(c->folder, name), *text = NULL;
    size_t length;
    int exit_code = CLI_OK;
    if (!from || !to) {
        exit_code = cli_failure("init", "not enough memory");
        goto done;
    }
    bool optional = which > 0;
    if (same_file(from, to) || (optional && access(from, F_OK) != 0)) goto done;
    exit_code = cli_read_file("init", from, &text, &length);
    if (exit_code == CLI_OK) exit_code = write_new_file(to, text, length, &c->copied[which]);
done:
    free(text);
    free(from);
    free(to);
    return exit_code;
}

/* Copies all files of a tokenizer's folder, or the one file that is named. */
static int copy_tokenizer(init_command *c)
{
    if (!c->tokenizer) return CLI_OK;
    int n = is_folder(c->tokenizer) ? N_TOKENIZER_FILES : 1, exit_code = CLI_OK;
    for (int i = 0; i < n && exit_code == CLI_OK; i++) exit_code = copy_tokenizer_file(c, i);
    return exit_code;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Called only when writing begins, because the folder may prove to be the wrong one. */
static void announce(const void *context, double bytes)
{
    const init_command *c = context;
    char size[CLI_BYTES], parameters[TABLE_CELL];
    fprintf(stderr, "%s, %lld layer%s: %s parameters, %s as %s\n", source(c),
            (long long)c->config.num_hidden_layers, c->config.num_hidden_layers > 1 ? "s" : "",
            number_group(c->n_parameters, parameters), cli_format_bytes(bytes, size),
            c->dtype_name);
}

static int write_folder(const init_command *c, conversion *w)
{
    dsmoe_error error;
    dsmoe_status status = dsmoe_model_init(c->folder, &c->config, c->dtype, (uint64_t)c->seed,
                                           (int)c->n_threads, conversion_progress, w, &error);
    if (status != DSMOE_OK) return conversion_failure(w, &error);
    progress_finish(&w->bar);
    return CLI_OK;
}

static int write_gguf(const init_command *c, conversion *w)
{
    dsmoe_convert_options options = {.type = c->dtype_name,
                                     .n_threads = (int)c->n_threads,
                                     .progress = conversion_progress,
                                     .context = w,
                                     .replace = c->force};
    dsmoe_error error;
    if (dsmoe_model_init_gguf(c->folder, &c->config, c->tokenizer, (uint64_t)c->seed, &options,
                              &error) != DSMOE_OK)
        return conversion_failure(w, &error);
    return conversion_summary(w);
}

static void print_result(const init_command *c)
{
    char size[CLI_BYTES];
    if (!conversion_to_gguf(c->folder))
        printf("%s: %s of weights, config.json, generation_config.json%s\n", c->folder,
               cli_format_bytes(c->bytes, size), c->tokenizer ? ", tokenizer.json" : "");
    if (c->tokenizer)
        printf("try: dsmoe generate -m %s -n 32 -p \"Once upon a time\"\n", c->folder);
    else
        printf("try: dsmoe generate -m %s -n 32 --ids -p \"1 2 3\"\n", c->folder);
}

int command_init(int argc, char **argv)
{
    init_command c = {.dtype_name = "bf16",
                      .n_threads = dsmoe_machine_threads(),
                      .sizes = dsmoe_model_sizes_default()};
    int exit_code = parse(&c, argc, argv);
    if (exit_code >= 0) return exit_code;
    conversion w = conversion_start("init", "writing", c.folder);
    w.announce = announce;
    w.context = &c;
    bool to_gguf = conversion_to_gguf(c.folder);
    exit_code = use_tokenizer(&c);
    if (exit_code == CLI_OK) exit_code = measure(&c);
    if (exit_code == CLI_OK && !to_gguf) exit_code = make_folder(&c);
    if (exit_code == CLI_OK && !to_gguf) exit_code = copy_tokenizer(&c);
    if (exit_code == CLI_OK) exit_code = to_gguf ? write_gguf(&c, &w) : write_folder(&c, &w);
    if (exit_code != CLI_OK) {
        clean_up(&c);
        return exit_code;
    }
    print_result(&c);
    return CLI_OK;
}
