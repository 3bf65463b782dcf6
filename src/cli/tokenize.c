/* tokenize.c - `dsmoe tokenize` and `dsmoe detokenize`: text to token ids and back, as a whole or
 * line by line. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ids.h"
#include "cli/json_line.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "formats/json_write.h"

static const char tokenize_help[] =
    "usage: dsmoe tokenize -m PATH [-p TEXT | -f FILE] [options]\n"
    "\n"
    "Prints the token ids of a text, BOS first if the model expects it. Without -p and -f the text\n"
    "is read from stdin.\n"
    "\n"
    "  -m, --model PATH   a folder with a tokenizer.json, that file itself, or a .gguf file\n"
    "  -p, --prompt TEXT  the text\n"
    "  -f, --file FILE    the same from a file, every byte of it (\"-\": stdin)\n"
    "      --no-bos       add no BOS\n"
    "      --special      text that spells a special token becomes that token\n"
    "      --jsonl        read one {\"text\": ...} from each line, and write {\"ids\": [...]};\n"
    "                     --special is then on\n"
    "      --no-special   text that spells a special token stays text\n"
    "  -h, --help         this text\n"
    "\n"
    "example:\n"
    "  dsmoe tokenize -m deepseek-moe-16b-base -p \"Hello, world\"\n";

static const char detokenize_help[] =
    "usage: dsmoe detokenize -m PATH [-p IDS | -f FILE] [options]\n"
    "\n"
    "Prints the text of token ids, byte by byte with nothing added. The ids are separated by blanks,\n"
    "newlines or commas. A BOS that 'dsmoe tokenize' puts before a text is left out.\n"
    "\n"
    "  -m, --model PATH   a folder with a tokenizer.json, that file itself, or a .gguf file\n"
    "  -p, --prompt IDS   the ids\n"
    "  -f, --file FILE    the same from a file (\"-\": stdin, which is also read without -p and -f)\n"
    "      --special      keeps BOS at the beginning\n"
    "      --jsonl        read one {\"ids\": [...]} from each line, and write {\"text\": ...};\n"
    "                     a byte that is not UTF-8 becomes U+FFFD\n"
    "  -h, --help         this text\n"
    "\n"
    "example:\n"
    "  dsmoe tokenize -m PATH -p \"Hello, world\" | dsmoe detokenize -m PATH\n";

/* The state of either command. */
typedef struct converter {
    const char *command;
    const char *model, *prompt, *file;
    bool jsonl, special, no_special, no_bos;
    dsmoe_tokenizer *tokenizer;
} converter;

/* ---- one text, one sequence ---------------------------------------------------------------- */

static dsmoe_status encode(const converter *c, const char *text, size_t length, int32_t **ids,
                           size_t *n_ids, dsmoe_error *error)
{
    int flags = c->no_bos ? 0 : DSMOE_ENCODE_BOS;
    if (c->special || (c->jsonl && !c->no_special)) flags |= DSMOE_ENCODE_SPECIAL;
    return dsmoe_tokenizer_encode(c->tokenizer, text, length, flags, ids, n_ids, error);
}

static dsmoe_status decode(const converter *c, const int32_t *ids, size_t n_ids, char **text,
                           size_t *length, dsmoe_error *error)
{
    bool automatic = !c->special && n_ids > 0 && dsmoe_tokenizer_adds_bos(c->tokenizer) &&
                     ids[0] == dsmoe_tokenizer_bos(c->tokenizer);
    return dsmoe_tokenizer_decode(c->tokenizer, ids + automatic, n_ids - automatic, text, length,
                                  error);
}

static void print_ids(const int32_t *ids, size_t n_ids, char separator)
{
    for (size_t i = 0; i < n_ids; i++) {
        if (i > 0) putchar(separator);
        printf("%" PRId32, ids[i]);
    }
}

/* ---- the whole input ----------------------------------------------------------------------- */

static int tokenize_text(const converter *c, const char *text, size_t length)
{
    int32_t *ids = NULL;
    size_t n_ids;
    dsmoe_error error;
    progress notice = progress_wait("tokenizing", length);
    dsmoe_status status = encode(c, text, length, &ids, &n_ids, &error);
    progress_finish(&notice);
    if (status != DSMOE_OK) return cli_failure(c->command, "%s", error.message);
    print_ids(ids, n_ids, ' ');
    putchar('\n');
    free(ids);
    return CLI_OK;
}

static int detokenize_text(const converter *c, const char *input, size_t input_length)
{
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n_ids, length;
    dsmoe_error error;
    ids_source source = {c->command, c->prompt ? "--prompt" : cli_input_name(c->file)};
    int code = ids_parse(source, input, input_length, &ids, &n_ids);
    if (code != CLI_OK) return code;
    if (decode(c, ids, n_ids, &text, &length, &error))
        code = cli_failure(c->command, "%s", error.message);
    else
        cli_print_text(text, length);
    free(text);
    free(ids);
    return code;
}

/* ---- line by line -------------------------------------------------------------------------- */

/* A place in the input, for messages. */
typedef struct place {
    const char *file;
    int64_t line;
} place;

static int fail_at_line(const converter *c, place at, const dsmoe_error *error)
{
    return cli_failure(c->command, "%s: line %" PRId64 ": %s", at.file, at.line, error->message);
}

static int tokenize_line(const converter *c, const char *line, size_t line_length, place at)
{
    dsmoe_error error;
    size_t length, n_ids;
    int32_t *ids = NULL;
    char *text = json_line_string(line, line_length, "text", &length, &error);
    if (!text) return fail_at_line(c, at, &error);
    dsmoe_status status = encode(c, text, length, &ids, &n_ids, &error);
    free(text);
    if (status != DSMOE_OK) return fail_at_line(c, at, &error);
    fputs("{\"ids\":[", stdout);
    print_ids(ids, n_ids, ',');
    puts("]}");
    free(ids);
    return CLI_OK;
}

static int detokenize_line(const converter *c, const char *line, size_t line_length, place at)
{
    dsmoe_error error;
    size_t n_ids, length;
    char *text = NULL;
    int32_t *ids = json_line_ids(line, line_length, "ids", &n_ids, &error);
    if (!ids) return fail_at_line(c, at, &error);
    dsmoe_status status = decode(c, ids, n_ids, &text, &length, &error);
    free(ids);
    if (status != DSMOE_OK) return fail_at_line(c, at, &error);
    fputs("{\"text\":", stdout);
    json_write_text(stdout, text, length);
    puts("}");
    free(text);
    return CLI_OK;
}

typedef int line_fn(const converter *c, const char *line, size_t length, place at);

/* Converts each line as it comes, so that the other end of a pipe gets its answer immediately. Blank lines
 * are skipped. */
static int convert_lines(const converter *c, FILE *input, const char *name, line_fn *convert)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    place at = {name, 0};
    int code = CLI_OK;
    errno = 0;
    while (code == CLI_OK && (length = getline(&line, &capacity, input)) >= 0) {
        at.line++;
        if (length > 0 && line[length - 1] == '\n') line[--length] = '\0';
        if (strspn(line, " \t\r") == (size_t)length) continue;
        code = convert(c, line, (size_t)length, at);
        if (!cli_flush()) break; /* cli_finish reports it */
        errno = 0;
    }
    if (code == CLI_OK && !feof(input) && !ferror(stdout))
        code = cli_failure(c->command, "%s: %s", name, strerror(errno));
    free(line);
    return code;
}

static int convert_jsonl(const converter *c, line_fn *convert)
{
    if (c->prompt) return convert(c, c->prompt, strlen(c->prompt), (place){"--prompt", 1});
    if (!strcmp(c->file, "-")) return convert_lines(c, stdin, cli_input_name(c->file), convert);
    FILE *input = fopen(c->file, "r");
    if (!input) return cli_failure(c->command, "%s: %s", c->file, strerror(errno));
    int code = convert_lines(c, input, c->file, convert);
    fclose(input);
    return code;
}

/* ---- the commands -------------------------------------------------------------------------- */

/* Without -p and -f the input is stdin. */
static int check_options(converter *c)
{
    if (!c->model)
        return cli_usage(
            c->command,
            "no tokenizer: name a model or a tokenizer.json with -m PATH; dsmoe tokenizer train "
            "makes one");
    if (c->prompt && c->file) return cli_usage(c->command, "either --prompt or --file, not both");
    if (c->special && c->no_special)
        return cli_usage(c->command, "either --special or --no-special, not both");
    if (!c->prompt && !c->file && isatty(STDIN_FILENO))
        return cli_usage(c->command,
                         "no input: give it with -p TEXT, or name its file with -f FILE");
    if (!c->prompt && !c->file) c->file = "-";
    return CLI_OK;
}

typedef int text_fn(const converter *c, const char *text, size_t length);

static int convert_all(const converter *c, text_fn *convert)
{
    if (c->prompt) return convert(c, c->prompt, strlen(c->prompt));
    char *text;
    size_t length;
    int code = cli_read_file(c->command, c->file, &text, &length);
    if (code != CLI_OK) return code;
    code = convert(c, text, length);
    free(text);
    return code;
}

static int run(converter *c, text_fn *convert_text, line_fn *convert_line)
{
    dsmoe_error error;
    int code = check_options(c);
    if (code != CLI_OK) return code;
    if (dsmoe_tokenizer_open(c->model, &c->tokenizer, &error))
        return cli_failure(c->command, "%s", error.message);
    code = c->jsonl ? convert_jsonl(c, convert_line) : convert_all(c, convert_text);
    dsmoe_tokenizer_free(c->tokenizer);
    return code;
}

int command_tokenize(int argc, char **argv)
{
    converter c = {.command = "tokenize"};
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &c.model, 0, 0},
        {"--prompt", "-p", OPTION_TEXT, &c.prompt, 0, 0},
        {"--file", "-f", OPTION_PATH, &c.file, 0, 0},
        {"--no-bos", NULL, OPTION_FLAG, &c.no_bos, 0, 0},
        {"--special", NULL, OPTION_FLAG, &c.special, 0, 0},
        {"--no-special", NULL, OPTION_FLAG, &c.no_special, 0, 0},
        {"--jsonl", NULL, OPTION_FLAG, &c.jsonl, 0, 0},
    };
    int code = options_parse("tokenize", tokenize_help, rows, 7, argc, argv, NULL);
    return code >= 0 ? code : run(&c, tokenize_text, tokenize_line);
}

int command_detokenize(int argc, char **argv)
{
    converter c = {.command = "detokenize"};
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &c.model, 0, 0},
        {"--prompt", "-p", OPTION_TEXT, &c.prompt, 0, 0},
        {"--file", "-f", OPTION_PATH, &c.file, 0, 0},
        {"--special", NULL, OPTION_FLAG, &c.special, 0, 0},
        {"--jsonl", NULL, OPTION_FLAG, &c.jsonl, 0, 0},
    };
    int code = options_parse("detokenize", detokenize_help, rows, 5, argc, argv, NULL);
    return code >= 0 ? code : run(&c, detokenize_text, detokenize_line);
}
