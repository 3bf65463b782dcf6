/* convert.c - `dsmoe convert`: a model from one form to another. */
#include "cli/cli.h"

#include <inttypes.h>

#include "cli/conversion.h"
#include "cli/model_path.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"

static const char help[] =
    "usage: dsmoe convert SRC DST [options]\n"
    "       dsmoe convert ADAPTER DST -m BASE\n"
    "\n"
    "Writes a model in another form: a folder in the public layout (config.json, safetensors,\n"
    "tokenizer.json) as a GGUF file, a GGUF file as a folder, or either in its own form with another\n"
    "type. SRC is a folder, a training run (its latest checkpoint) or a .gguf file (any part of a\n"
    "split one); DST is a file if its name ends with .gguf, otherwise a folder that is new or empty.\n"
    "Configuration and tokenizer are copied too. With -m, SRC is a LoRA adapter of that model, a PEFT\n"
    "folder or a GGUF adapter, and DST is written in the other form.\n"
    "\n"
    "  -m, --model BASE   the model that the adapter is for\n"
    "      --type TYPE    f32, f16 or bf16: the type of the matrices (default: as they are; from a\n"
    "                     quantised file to a folder a type must be given). Other types are those\n"
    "                     of dsmoe quantize, into a .gguf file.\n"
    "      --force        " OUTPUT_FORCE_HELP "\n"
    "                     or a folder\n"
    "  -t, --threads N    threads to use (default: all processors)\n"
    "  -h, --help         this text\n"
    "\n"
    "Between float types nothing is lost except what a narrower type cannot hold: a folder that\n"
    "becomes a GGUF file and a folder again has the same weights, bit for bit, and its JSON files say\n"
    "the same (docs/quantised.md names what config.json does not keep). Ctrl-C removes what was\n"
    "written.\n"
    "\n"
    "examples:\n"
    "  dsmoe convert deepseek-moe-16b-base moe-16b.gguf\n"
    "  dsmoe convert moe-16b-q8_0.gguf moe-16b-again --type bf16\n"
    "  dsmoe convert my-run/latest adapter.gguf -m deepseek-moe-16b-base\n";

static int convert_adapter(const char *base, const char *from, const char *to, bool replace)
{
    model_path found_model, found;
    dsmoe_model *model = NULL;
    dsmoe_adapter *adapter = NULL;
    dsmoe_error error;
    int exit_code = model_path_find("convert", &base, &found_model);
    if (exit_code == CLI_OK) exit_code = model_path_find("convert", &from, &found);
    if (exit_code != CLI_OK) return exit_code;
    if (dsmoe_model_open(base, &model, &error) != DSMOE_OK ||
        dsmoe_adapter_open(from, model, &adapter, &error) != DSMOE_OK ||
        dsmoe_adapter_write(adapter, to, replace, &error) != DSMOE_OK) {
        exit_code = cli_failure("convert", "%s", error.message);
    } else {
        dsmoe_adapter_info info = dsmoe_adapter_get_info(adapter);
        printf("%s: %" PRId64 " matrices adapted, rank %" PRId64 ", %" PRId64 " parameters\n", to,
               info.n_matrices, info.rank, info.n_parameters);
    }
    dsmoe_adapter_free(adapter);
    dsmoe_model_free(model);
    return exit_code;
}

int command_convert(int argc, char **argv)
{
    const char *paths[2] = {NULL, NULL}, *base = NULL;
    dsmoe_convert_options options = {0};
    int64_t n_threads = dsmoe_machine_threads();
    const option_row rows[] = {
        {"--model", "-m", OPTION_PATH, &base, 0, 0},
        {"--type", NULL, OPTION_NAME, &options.type, 0, 0},
        {"--force", NULL, OPTION_FLAG, &options.replace, 0, 0},
        {"--threads", "-t", OPTION_INTEGER, &n_threads, 1, CLI_MAX_THREADS},
    };
    option_words words = {paths, 2, 0};
    int exit_code =
        options_parse("convert", help, rows, sizeof rows / sizeof *rows, argc, argv, &words);
    if (exit_code >= 0) return exit_code;
    if (words.count < 2)
        return cli_usage("convert", "a source and a target are needed: dsmoe convert SRC DST");
    if (options.type && names_check_type("convert", options.type) != CLI_OK) return CLI_USAGE;
    if (base && options.type)
        return cli_usage("convert", "--type has no effect on an adapter: it is written in f32");
    if (base) return convert_adapter(base, paths[0], paths[1], options.replace);
    conversion c = conversion_start("convert", "converting", paths[1]);
    options.n_threads = (int)n_threads;
    return conversion_run(&c, paths[0], options);
}
