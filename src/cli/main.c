/* main.c - the command `dsmoe`: finds the sub-command and hands over. */
#include "cli/cli.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"demo", "a small model in a minute: made-up text, training, its experts", command_demo},
    {"generate", "continue a text", command_generate},
    {"chat", "a conversation with a model", command_chat},
    {"train", "train a model on text, or go on with a run that was stopped", command_train},
    {"report", "the page of a training run, made anew", command_report},
    {"eval", "how well a model predicts a text: cross entropy, perplexity, bits per byte",
     command_eval},
    {"ablate", "the paper's comparison of architectures, trained on a text", command_ablate},
    {"inspect", "what a model is, and which experts a text uses", command_inspect},
    {"tokenize", "text to token ids", command_tokenize},
    {"detokenize", "token ids to text", command_detokenize},
    {"tokenizer", "learn a tokenizer from text", command_tokenizer},
    {"init", "write a freshly initialised model", command_init},
    {"convert", "a model folder as a GGUF file, or the other way round", command_convert},
    {"quantize", "a model with fewer bits for each weight", command_quantize},
    {"imatrix", "what quantising a model should take most care of", command_imatrix},
    {"plan", "the paper's three architectures side by side, or what a config.json describes",
     command_plan},
    {"verify", "check the layer and whole models against reference files", command_verify},
    {"bench", "measure speed against what the machine can do", command_bench},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *file)
{
    fprintf(file,
            "dsmoe %s - DeepSeekMoE on ordinary CPUs\n\n"
            "usage: dsmoe COMMAND [options]\n\n"
            "commands:\n",
            dsmoe_version());
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(file, "  %-10s  %s\n", commands[i].name, commands[i].summary);
    fprintf(file,
            "\nexamples:\n"
            "  dsmoe generate -m DIR -p \"Once upon a time\"   continue a text\n"
            "  dsmoe plan                                    what fine-grained experts buy, "
            "in one table\n\n"
            "A command never replaces one of its inputs; it replaces another file only with\n"
            "--force and only one of the same kind; it fills only folders that are new or empty.\n"
            "'dsmoe COMMAND --help' tells more about a command.\n");
}

/* A standard stream that the caller has closed must not become the next file that is opened, or
 * messages would end up in a model. It stays unusable: /dev/null, open for the wrong direction. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    cli_catch_lost_file();
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_help(stdout);
        return cli_finish(name, CLI_OK);
    }
    if (!strcmp(name, "--version")) {
        printf("dsmoe %s (%s kernels)\n", dsmoe_version(), dsmoe_kernels_name());
        return cli_finish(name, CLI_OK);
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return cli_finish(name, commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "dsmoe: there is no command '%s'\ntry: dsmoe --help\n", name);
    return CLI_USAGE;
}
