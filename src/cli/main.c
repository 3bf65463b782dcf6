/* main.c - the command `dsmoe`: finds the subcommand and calls it. */
#include "cli/cli.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/ranks.h"
#include "cli/suggest.h"

enum { MAX_PARTS = 3 };

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
    const char *parts[MAX_PARTS]; /* its own subcommands, NULL after the last */
} command;

static const command commands[] = {
    {"demo",
     "train a small model on made-up text in a minute and show its experts",
     command_demo,
     {NULL}},
    {"generate", "continue a text", command_generate, {NULL}},
    {"chat", "talk with a model", command_chat, {NULL}},
    {"serve",
     "serve a model to many people: a web page and OpenAI's interface",
     command_serve,
     {NULL}},
    {"train", "train a model on text, or continue a run that was stopped", command_train, {NULL}},
    {"report", "make the page of a training run again", command_report, {NULL}},
    {"eval",
     "measure how well a model predicts a text: cross entropy, perplexity, bits per byte",
     command_eval,
     {NULL}},
    {"ablate", "repeat the paper's comparison of architectures on a text", command_ablate, {NULL}},
    {"inspect", "show what a model is, and which experts a text uses", command_inspect, {NULL}},
    {"tokenize", "turn text into token ids", command_tokenize, {NULL}},
    {"detokenize", "turn token ids into text", command_detokenize, {NULL}},
    {"tokenizer", "learn a tokenizer from text", command_tokenizer, {"train"}},
    {"init", "write a freshly initialised model", command_init, {NULL}},
    {"convert",
     "turn a model folder into a GGUF file, or the other way round",
     command_convert,
     {NULL}},
    {"merge", "put the changes of fine-tuning into a model's weights", command_merge, {NULL}},
    {"quantize", "write a model with fewer bits for each weight", command_quantize, {NULL}},
    {"imatrix", "find the weights that quantising should keep most exact", command_imatrix, {NULL}},
    {"plan",
     "compare the paper's three architectures, or explain a config.json",
     command_plan,
     {NULL}},
    {"verify", "check the layer and whole models against reference files", command_verify, {NULL}},
    {"bench",
     "measure speed against what the machine can do",
     command_bench,
     {"layer", "model", "train"}},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* ---- help ------------------------------------------------------------------------------------ */

static void print_help(FILE *file)
{
    fprintf(file,
            "dsmoe %s - DeepSeekMoE on ordinary CPUs\n\n"
            "usage: dsmoe COMMAND [options]\n\n"
            "commands:\n",
            dsmoe_version());
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(file, "  %-10s  %s\n", commands[i].name, commands[i].summary);
    fprintf(
        file,
        "\nexamples:\n"
        "  dsmoe demo                                    train a small model and see its "
        "experts\n"
        "  dsmoe generate -m DIR -p \"Once upon a time\"   continue a text\n"
        "  dsmoe plan                                    what fine-grained experts buy, "
        "in one table\n\n"
        "A command never replaces its inputs. It replaces another file only with --force, and only\n"
        "if that file is of the same kind. It writes only into folders that are new or empty.\n"
        "'dsmoe help COMMAND' or 'dsmoe COMMAND --help' shows the options of a command.\n");
}

/* ---- finding a command ----------------------------------------------------------------------- */

static const command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name)) return &commands[i];
    return NULL;
}

static bool asks_for_help(const char *word)
{
    return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

static int refuse_command(const char *name)
{
    enum { N_OWN = 3 };
    const char *names[N_COMMANDS + N_OWN] = {"--help", "--version", "help"};
    char hint[SUGGESTION];
    bool is_option = *name == '-';
    for (int i = 0; i < N_COMMANDS; i++) names[i + N_OWN] = commands[i].name;
    suggest_text(name, names, is_option ? 2 : N_COMMANDS + N_OWN, hint);
    return cli_usage(NULL, "there is no %s '%s'%s", is_option ? "option" : "command", name, hint);
}

/* `dsmoe help bench layer`, with or without quotes around both words, is `dsmoe bench layer --help`. Help
 * about help is the general help. */
static int run_help(int argc, char **argv)
{
    enum { MOST_WORDS = 2 };
    static char help[] = "--help";
    while (argc > 1 && (asks_for_help(argv[1]) || !strcmp(argv[1], "--version"))) argc--, argv++;
    if (argc == 1) {
        print_help(stdout);
        return cli_finish("help", CLI_OK);
    }
    char *name = argv[1], *part = argc > 2 ? argv[2] : NULL, *blank = strchr(name, ' ');
    if (blank) {
        *blank = '\0';
        part = blank + 1;
    }
    const command *found = find_command(name);
    if (!found) return refuse_command(name);
    char *words[MOST_WORDS + 2] = {name};
    int n = 1;
    if (part && found->parts[0]) words[n++] = part;
    words[n++] = help;
    return cli_finish(name, found->run(n, words));
}

/* Appends the command, such as "dsmoe bench layer", if it has the option. */
static void add_owner(const command *c, const char *part, const char *option, char *out,
                      size_t size)
{
    char *words[] = {(char *)c->name, (char *)part};
    size_t used = strlen(out);
    if (options_has(c->run, part ? 2 : 1, words, option))
        snprintf(out + used, size - used, "%sdsmoe %s%s%s", used ? ", " : "", c->name,
                 part ? " " : "", part ? part : "");
}

static void find_owners(const char *option, char *out, size_t size)
{
    *out = '\0';
    for (int i = 0; i < N_COMMANDS; i++) {
        const command *c = &commands[i];
        if (!c->parts[0]) add_owner(c, NULL, option, out, size);
        for (int j = 0; j < MAX_PARTS && c->parts[j]; j++)
            add_owner(c, c->parts[j], option, out, size);
    }
}

/* ---- the command ----------------------------------------------------------------------------- */

/* If the caller has closed a standard stream, the next file that is opened would take its place, and messages
 * could end up in a model. /dev/null, open for the wrong direction, takes it and keeps the stream
 * unusable. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

static int print_version(void)
{
    dsmoe_error error;
    printf("dsmoe %s (%s kernels)\n", dsmoe_version(), dsmoe_kernels_name());
    if (dsmoe_kernels_check(&error) != DSMOE_OK) printf("%s\n", error.message);
    return cli_finish("--version", CLI_OK);
}

/* A command that does not work with other ranks would run on each of them and write the same files. */
static int run_command(const command *c, int argc, char **argv)
{
    bool is_bench_train = c->run == command_bench && argc > 1 && !strcmp(argv[1], "train");
    bool joins_ranks = c->run == command_train || c->run == command_generate || is_bench_train;
    if (joins_ranks || !ranks_are_many()) return c->run(argc, argv);
    cli_note(c->name, "it runs on one machine only: start it without mpirun");
    return CLI_USAGE;
}

static int run_words(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (asks_for_help(name)) return run_help(argc - 1, argv + 1);
    if (!strcmp(name, "--version")) return print_version();
    const command *found = find_command(name);
    if (!found) return refuse_command(name);
    return cli_finish(name, run_command(found, argc - 1, argv + 1));
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    ranks_begin();
    cli_catch_lost_file();
    options_set_owners(find_owners);
    return ranks_close(argc > 1 ? argv[1] : NULL, run_words(argc, argv));
}
