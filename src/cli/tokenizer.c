/* tokenizer.c - `dsmoe tokenizer train`: learns a tokenizer from text. */
#include "cli/cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/suggest.h"
#include "cli/table.h"
#include "report/token_label.h"

static const char command[] = "tokenizer train";

static const char help[] =
    "usage: dsmoe tokenizer train --data PATH --out DIR [options]\n"
    "\n"
    "  train  learns a tokenizer from text\n"
    "\n"
    "'dsmoe tokenizer train --help' shows its options.\n"
    "\n"
    "example:\n"
    "  dsmoe tokenizer train --data docs --vocab-size 1024 --out my-tokenizer\n";

static const char train_help[] =
    "usage: dsmoe tokenizer train --data PATH [PATH...] --out DIR [options]\n"
    "\n"
    "Learns a byte-level BPE tokenizer from text and writes tokenizer.json and\n"
    "tokenizer_config.json, which Hugging Face's tokenizers load as well. The same text gives the\n"
    "same files, whatever the number of threads.\n"
    "\n"
    "      --data PATH      text: a file, JSON lines (.jsonl) of texts or conversations, or a folder of\n"
    "                       such files; may be given several times, and further words are paths too\n"
    "      --bad-bytes NAME for bytes that are not UTF-8: replace (by U+FFFD, default), keep, or skip\n"
    "                       the files that have any; binary files are always left out\n"
    "      --held-out X     share of the text to leave out: the text that 'dsmoe train --held-out X'\n"
    "                       on the same data holds out (0)\n"
    "      --out DIR        the folder for the two files: new or empty\n"
    "      --force          " OUTPUT_FORCE_HELP "\n"
    "      --vocab-size N   tokens in all (8192, or what the text allows): 256 bytes, what is\n"
    "                       learned, and two special tokens that begin and end a text\n"
    "      --max-bytes N    bytes of text to look at, taken evenly from all of it (100000000)\n"
    "  -t, --threads N      threads to use (default: all processors)\n"
    "  -h, --help           this text\n"
    "\n"
    "Ctrl-C writes nothing.\n"
    "\n"
    "example:\n"
    "  dsmoe tokenizer train --data docs --vocab-size 1024 --out my-tokenizer\n";

enum { MAX_PATHS = 64 };

typedef struct train_command {
    const char *paths[MAX_PATHS];
    int n_paths;
    const char *folder, *bad_bytes_name;
    bool force;
    dsmoe_bad_bytes bad_bytes;
    double held_out;
    int64_t vocab_size, max_bytes, n_threads;
    /* What the work reports. */
    progress bar;
    bool merging;
    double done, n_bytes;
    int64_t n_text_bytes, n_text_tokens;
    dsmoe_data_files files;
} train_command;

/* ---- options --------------------------------------------------------------------------------- */

/* The folder may hold only the two files, and these only with --force: a tokenizer is part of the model that
 * was trained with it. */
static int check_folder(const train_command *c)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    int exit_code = output_check_folder(command, c->folder, names, 2);
    for (int i = 0; i < 2 && exit_code == CLI_OK && access(c->folder, F_OK) == 0; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", c->folder, names[i]) < 0)
            return cli_failure(command, "not enough memory");
        const dsmoe_output file = {path, DSMOE_OUTPUT_TOKENIZER, c->force, c->paths, c->n_paths};
        exit_code = output_check(command, &file);
        free(path);
    }
    return exit_code;
}

static int parse(train_command *c, int argc, char **argv)
{
    option_words words = {c->paths, MAX_PATHS, 0}; /* --data and other words, in order */
    const option_row rows[] = {
        {"--data", NULL, OPTION_PATH_LIST, &words, 0, 0},
        {"--bad-bytes", NULL, OPTION_NAME, &c->bad_bytes_name, 0, 0},
        {"--held-out", NULL, OPTION_NUMBER, &c->held_out, 0, 0.9},
        {"--out", NULL, OPTION_PATH, &c->folder, 0, 0},
        {"--force", NULL, OPTION_FLAG, &c->force, 0, 0},
        {"--vocab-size", NULL, OPTION_INTEGER, &c->vocab_size, 258, 1 << 20},
        {"--max-bytes", NULL, OPTION_INTEGER, &c->max_bytes, 1, 0x1p62},
        {"--threads", "-t", OPTION_INTEGER, &c->n_threads, 1, CLI_MAX_THREADS},
    };
    int exit_code =
        options_parse(command, train_help, rows, sizeof rows / sizeof *rows, argc, argv, &words);
    if (exit_code >= 0) return exit_code;
    c->n_paths = words.count;
    if (c->n_paths == 0)
        return cli_usage(command,
                         "no text to learn from: name a file or a folder with --data PATH");
    if (names_find_bad_bytes(command, c->bad_bytes_name, &c->bad_bytes) != CLI_OK) return CLI_USAGE;
    if (!c->folder)
        return cli_usage(
            command,
            "no folder for the tokenizer: name one with --out DIR, such as --out my-tokenizer");
    exit_code = check_folder(c);
    return exit_code == CLI_OK ? -1 : exit_code;
}

/* ---- training -------------------------------------------------------------------------------- */

/* Bytes are counted first, then merges from 0 on. */
static bool show_progress(void *context, double done, double total)
{
    train_command *c = context;
    if (!c->merging && done < c->done) {
        progress_finish(&c->bar);
        c->bar = progress_start("merging", "merges");
        c->merging = true;
    }
    c->done = done;
    if (!c->merging) c->n_bytes = total;
    progress_update(&c->bar, done, total);
    return !cli_interrupted();
}

static int train(train_command *c)
{
    dsmoe_tokenizer_train_options options = {.paths = c->paths,
                                             .n_paths = c->n_paths,
                                             .vocab_size = c->vocab_size,
                                             .max_bytes = c->max_bytes,
                                             .n_threads = (int)c->n_threads,
                                             .replace = c->force,
                                             .held_out = c->held_out,
                                             .bad_bytes = c->bad_bytes,
                                             .files = &c->files,
                                             .n_text_bytes = &c->n_text_bytes,
                                             .n_text_tokens = &c->n_text_tokens};
    dsmoe_error error;
    c->bar = progress_start("reading", "bytes");
    dsmoe_status status = dsmoe_tokenizer_train(&options, c->folder, show_progress, c, &error);
    progress_finish(&c->bar);
    if (status == DSMOE_OK) {
        cli_warn_of_files(command, &c->files);
        return CLI_OK;
    }
    if (status == DSMOE_ERROR_STOPPED) {
        cli_failure(command, "interrupted; nothing is written");
        return CLI_INTERRUPTED;
    }
    return cli_failure(command, "%s", error.message);
}

/* ---- results --------------------------------------------------------------------------------- */

enum { SHOWN = 6, FIRST_MERGE = 256 };

static void print_tokens(const char *what, const dsmoe_tokenizer *tokenizer, const int32_t *ids,
                         int n)
{
    if (n > 0) printf("  %s", what);
    for (int i = 0; i < n; i++) {
        char label[TOKEN_LABEL];
        token_label(tokenizer, ids[i], label);
        printf("  %s%s", label, i + 1 < n ? "" : "\n");
    }
}

/* Whether a token is a word: letters and characters beyond ASCII, perhaps after a space. A row of dashes is
 * not. */
static bool is_word(const char *piece, size_t length)
{
    for (size_t i = piece[0] == ' '; i < length; i++) {
        unsigned char byte = (unsigned char)piece[i], lower = byte | 0x20;
        if (byte < 0x80 && (lower < 'a' || lower > 'z')) return false;
        if (byte == 0xe2 || byte >= 0xf0) return false; /* mostly symbols and pictures */
    }
    return true;
}

/* The longest words, the longest first; of equal ones the lower ids. */
static int find_longest(const dsmoe_tokenizer *tokenizer, int32_t n_learned, int32_t ids[SHOWN])
{
    size_t lengths[SHOWN], length;
    int n = 0;
    for (int32_t id = FIRST_MERGE; id < n_learned; id++) {
        const char *piece = dsmoe_tokenizer_piece(tokenizer, id, &length);
        if (!piece || !is_word(piece, length)) continue;
        int place = n < SHOWN ? n++ : SHOWN;
        for (; place > 0 && lengths[place - 1] < length; place--)
            if (place < SHOWN) {
                lengths[place] = lengths[place - 1];
                ids[place] = ids[place - 1];
            }
        if (place == SHOWN) continue;
        lengths[place] = length;
        ids[place] = id;
    }
    return n;
}

static void print_facts(const train_command *c, const dsmoe_tokenizer *tokenizer, double seconds)
{
    char tokens[TABLE_CELL], size[CLI_BYTES], looked[CLI_BYTES];
    int32_t first[SHOWN], longest[SHOWN];
    int64_t n_tokens = dsmoe_tokenizer_size(tokenizer);
    int32_t n_learned = (int32_t)n_tokens - 2;
    int n_first = 0;
    for (int32_t id = FIRST_MERGE; id < n_learned && n_first < SHOWN; id++) first[n_first++] = id;
    printf("%s/tokenizer.json: %s tokens from %s of text", c->folder,
           number_group(n_tokens, tokens), cli_format_bytes(c->n_bytes, size));
    if ((double)c->max_bytes < c->n_bytes)
        printf(" (%s looked at)", cli_format_bytes((double)c->max_bytes, looked));
    printf(" in %.1f s\n", seconds);
    printf("  bytes per token  %.2f\n", (double)c->n_text_bytes / (double)c->n_text_tokens);
    print_tokens("first learned  ", tokenizer, first, n_first);
    print_tokens("longest words  ", tokenizer, longest,
                 find_longest(tokenizer, n_learned, longest));
    printf("try: dsmoe tokenize -m %s -p \"Once upon a time\"\n", c->folder);
    printf("     dsmoe train --data %s --tokenizer %s --out my-run\n", c->paths[0], c->folder);
}

static int tokenizer_train(int argc, char **argv)
{
    train_command c = {
        .max_bytes = 100000000, .n_threads = dsmoe_machine_threads(), .bad_bytes_name = "replace"};
    int exit_code = parse(&c, argc, argv);
    if (exit_code >= 0) return exit_code;
    cli_catch_interrupt();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error, like a full disk */
    double start = cli_seconds();
    exit_code = train(&c);
    if (exit_code != CLI_OK) return exit_code;
    double seconds = cli_seconds() - start;
    dsmoe_tokenizer *tokenizer;
    dsmoe_error error;
    if (dsmoe_tokenizer_open(c.folder, &tokenizer, &error) != DSMOE_OK)
        return cli_failure(command, "%s", error.message);
    print_facts(&c, tokenizer, seconds);
    dsmoe_tokenizer_free(tokenizer);
    return CLI_OK;
}

int command_tokenizer(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "train")) return tokenizer_train(argc - 1, argv + 1);
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help, stdout);
        return CLI_OK;
    }
    static const char *const parts[] = {"train"};
    return suggest_part("tokenizer", argc > 1 ? argv[1] : NULL, parts, 1);
}
