/* merge.c - `dsmoe merge`: puts the changes of fine-tuning into a base model. */
#include "cli/cli.h"

#include "cli/conversion.h"
#include "cli/model_path.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"

static const char help[] =
    "usage: dsmoe merge BASE ADAPTER OUT [options]\n"
    "\n"
    "Writes a model that has the changes of fine-tuning in its weights. ADAPTER is a LoRA adapter (a\n"
    "PEFT folder, a GGUF adapter, or a training run that made one): W becomes W + scale·B·A, in\n"
    "double precision. Or it is a folder with only changed tensors, as training of some experts\n"
    "leaves it, or a run that made one: these replace the base's. OUT is a file if its name ends with\n"
    ".gguf, otherwise a folder that is new or empty. Configuration and tokenizer are the base's,\n"
    "except for the chat form, if ADAPTER was trained on conversations in another one.\n"
    "\n"
    "      --scale X      multiplies the adapter's additions (1)\n"
    "      --type TYPE    f32, f16, bf16, or into a .gguf file a type of dsmoe quantize (default: as\n"
    "                     the base; what is changed is quantised again, the rest keeps its bytes)\n"
    "      --imatrix FILE importances of the weights, from dsmoe imatrix\n"
    "      --force        " OUTPUT_FORCE_HELP "\n"
    "  -t, --threads N    threads to use (default: all processors)\n"
    "  -h, --help         this text\n"
    "\n"
    "examples:\n"
    "  dsmoe merge deepseek-moe-16b-base my-run tuned --type bf16\n"
    "  dsmoe merge moe-16b-q8_0.gguf adapter.gguf tuned-q8_0.gguf --scale 0.5\n";

int command_merge(int argc, char **argv)
{
    const char *paths[3] = {NULL, NULL, NULL};
    dsmoe_convert_options options = {0};
    int64_t n_threads = dsmoe_machine_threads();
    conversion_merge change = {.scale = 1};
    const option_row rows[] = {
        {"--scale", NULL, OPTION_NUMBER, &change.scale, -1000, 1000},
        {"--type", NULL, OPTION_NAME, &options.type, 0, 0},
        {"--imatrix", NULL, OPTION_PATH, &options.imatrix, 0, 0},
        {"--force", NULL, OPTION_FLAG, &options.replace, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &n_threads, 1, CLI_MAX_THREADS},
    };
    option_words words = {paths, 3, 0};
    int exit_code =
        options_parse("merge", help, rows, sizeof rows / sizeof *rows, argc, argv, &words);
    if (exit_code >= 0) return exit_code;
    if (words.count < 3)
        return cli_usage(
            "merge", "a base, an adapter and a target are needed: dsmoe merge BASE ADAPTER OUT");
    if (options.type && names_check_type("merge", options.type) != CLI_OK) return CLI_USAGE;
    model_path found;
    change.path = paths[1];
    exit_code = model_path_find("merge", &change.path, &found);
    if (exit_code != CLI_OK) return exit_code;
    conversion c = conversion_start("merge", "merging", paths[2]);
    c.merge = &change;
    options.n_threads = (int)n_threads;
    return conversion_run(&c, paths[0], options);
}
