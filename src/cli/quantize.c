/* quantize.c - `dsmoe quantize`: a model with fewer bits for each weight. */
#include "cli/cli.h"

#include <string.h>

#include "cli/conversion.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"

static const char help[] =
    "usage: dsmoe quantize SRC DST.gguf --type TYPE [options]\n"
    "\n"
    "Writes a model with fewer bits for each weight. SRC is a folder, a training run (its latest\n"
    "checkpoint) or a .gguf file, preferably not quantised itself; DST is a GGUF file, which\n"
    "llama.cpp reads as well.\n"
    "\n"
    "      --type TYPE      q8_0, q6_k, q5_1, q5_k, q5_0, q4_k, q4_0 (8.5 to 4.5 bits a weight), or\n"
    "                       q4_k_m: q4_k with the matrices that matter most in q6_k\n"
    "      --imatrix FILE   importances of the weights, from dsmoe imatrix or llama.cpp's\n"
    "      --force          " OUTPUT_FORCE_HELP "\n"
    "  -t, --threads N      threads to use (default: all processors)\n"
    "  -h, --help           this text\n"
    "\n"
    "Norms and routers stay float32, and the head gets q6_k at least. Rows that are not a multiple of\n"
    "256 numbers get another type: q5_0 for q4_k, q5_1 for q5_k, q8_0 for q6_k, and f16 if they are\n"
    "not a multiple of 32 either. Memory does not grow with the model. Ctrl-C removes what was\n"
    "written.\n"
    "\n"
    "example: 33 GB become 10\n"
    "  dsmoe imatrix -m deepseek-moe-16b-base -f text.txt -o moe-16b.imatrix.gguf\n"
    "  dsmoe quantize deepseek-moe-16b-base moe-16b-q4_k_m.gguf --type q4_k_m \\\n"
    "      --imatrix moe-16b.imatrix.gguf\n";

int command_quantize(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL};
    dsmoe_convert_options options = {0};
    int64_t n_threads = dsmoe_machine_threads();
    const option_row rows[] = {
        {"--type", NULL, OPTION_NAME, &options.type, 0, 0},
        {"--imatrix", NULL, OPTION_PATH, &options.imatrix, 0, 0},
        {"--force", NULL, OPTION_FLAG, &options.replace, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &n_threads, 1, CLI_MAX_THREADS},
    };
    option_words words = {paths, 2, 0};
    int exit_code =
        options_parse("quantize", help, rows, sizeof rows / sizeof *rows, argc, argv, &words);
    if (exit_code >= 0) return exit_code;
    if (words.count < 2)
        return cli_usage(
            "quantize",
            "a source and a target are needed: dsmoe quantize SRC DST.gguf --type TYPE");
    if (!options.type)
        return cli_usage(
            "quantize",
            "no type: give one with --type, such as --type q4_k_m; dsmoe quantize --help lists "
            "them");
    if (names_check_type("quantize", options.type) != CLI_OK) return CLI_USAGE;
    if (options.imatrix && strchr(options.type, 'f')) /* f32, f16 and bf16 */
        return cli_usage("quantize",
                         "--imatrix has no effect on --type %s: only on block types such as q8_0",
                         options.type);
    if (!conversion_to_gguf(paths[1]))
        return cli_usage("quantize", "%s: the name of a quantised model ends with .gguf", paths[1]);
    conversion c = conversion_start("quantize", "quantizing", paths[1]);
    options.n_threads = (int)n_threads;
    return conversion_run(&c, paths[0], options);
}
