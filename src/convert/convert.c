/* convert.c - converts a model from one form to another, and makes a fresh model as a GGUF file. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "convert/folder_export.h"
#include "convert/gguf_export.h"
#include "formats/mapped_file.h"
#include "formats/output.h"
#include "formats/whole_file.h"
#include "model/config.h"
#include "model/folder_writer.h"
#include "text/gguf_tokenizer.h"

typedef struct conversion {
    const char *from, *to;
    const char *change; /* path of what is merged into it; NULL: nothing */
    double scale;
    merge merge;
    dsmoe_convert_options options; /* with defaults filled in */
    mixture mixture;
    bool to_gguf;
    dsmoe_model *model;
    source source;
    imatrix *imatrix;
    bool has_tokenizer;
    const dsmoe_chat_form *form; /* that the change was trained with; NULL: the tokenizer's */
    char *name;                  /* general.name */
    gguf_string generation;      /* generation_config.json: in */
    char *generation_memory;     /* this memory or in the source's metadata */
    int64_t file_type;           /* -1: unknown */
} conversion;

static dsmoe_status out_of_memory(const conversion *c, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", c->to);
}

static bool ends_with(const char *text, size_t length, const char *suffix)
{
    size_t n = strlen(suffix);
    return length >= n && !memcmp(text + length - n, suffix, n);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Called before anything is read, so that a target that cannot be written is reported immediately. */
static dsmoe_status check_target(const conversion *c, const dsmoe_convert_options *options,
                                 const char *tokenizer, dsmoe_error *error)
{
    const char *inputs[] = {c->from, c->change, tokenizer, options ? options->imatrix : NULL};
    const dsmoe_output output = {.path = c->to,
                                 .kind = DSMOE_OUTPUT_MODEL,
                                 .replace = options && options->replace,
                                 .inputs = inputs,
                                 .n_inputs = sizeof inputs / sizeof *inputs};
    return c->to_gguf ? dsmoe_output_check(&output, error)
                      : dsmoe_output_folder_check(c->to, NULL, 0, error);
}

/* Every part of a split model is an input. */
static dsmoe_status check_parts(const conversion *c, dsmoe_error *error)
{
    const gguf *file = c->model->gguf;
    for (size_t i = 0; file && i < gguf_count(file); i++)
        if (output_same_file(c->to, gguf_tensor_path(file, gguf_at(file, i))))
            return status_fail(error, DSMOE_ERROR_IO,
                               "%s: is one of the inputs, a part of the model; choose another name",
                               c->to);
    return DSMOE_OK;
}

/* Whether some matrices get a block type. */
static bool quantises(const mixture *m) { return !m->as_is && dtype_is_block(m->type); }

static dsmoe_status take_options(conversion *c, const dsmoe_convert_options *options,
                                 dsmoe_error *error)
{
    if (options) c->options = *options;
    if (c->options.n_threads < 0)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "threads must be at least 1, not %d",
                           c->options.n_threads);
    if (c->options.n_threads == 0) c->options.n_threads = threads_available();
    STATUS_TRY(mixture_parse(c->options.type, &c->mixture, error));
    if (!c->to_gguf && quantises(&c->mixture))
        return status_fail(
            error, DSMOE_ERROR_ARGUMENT,
            "%s: a folder holds f32, f16 or bf16, not %s; choose a name that ends with .gguf",
            c->to, c->options.type);
    if (!c->options.imatrix) return DSMOE_OK;
    if (!quantises(&c->mixture))
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: importances only affect block types (q8_0, q4_k, …)",
                           c->options.imatrix);
    return imatrix_open(c->options.imatrix, &c->imatrix, error);
}

static char *copy_text(const char *bytes, size_t length)
{
    char *copy = malloc(length + 1);
    if (!copy) return NULL;
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    return copy;
}

/* A model's name: the last part of its path, without .gguf. */
static char *name_of(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t first = length;
    while (first > 0 && path[first - 1] != '/') first--;
    const char *name = path + first;
    length -= first;
    if (length > 5 && ends_with(name, length, ".gguf")) length -= 5;
    return strspn(name, "./") >= length ? copy_text("model", 5) : copy_text(name, length);
}

/* ---- tokenizer, generation_config.json and name ---------------------------------------------- */

enum { GENERATION_MAX_SIZE = 1 << 20 }; /* bytes of a generation_config.json */

static dsmoe_status take_generation(conversion *c, const char *path, dsmoe_error *error)
{
    whole_file file;
    STATUS_TRY(whole_file_read(&file, path, GENERATION_MAX_SIZE, error));
    c->generation_memory = file.bytes;
    c->generation = (gguf_string){c->generation_memory, file.size};
    return DSMOE_OK;
}

static dsmoe_status take_folder(conversion *c, dsmoe_error *error)
{
    char *tokenizer = mapped_file_path(c->from, "tokenizer.json");
    char *generation = mapped_file_path(c->from, "generation_config.json");
    dsmoe_status status = DSMOE_OK;
    c->name = name_of(c->from);
    if (!tokenizer || !generation || !c->name) {
        status = out_of_memory(c, error);
    } else {
        c->has_tokenizer = access(tokenizer, F_OK) == 0;
        if (access(generation, F_OK) == 0) status = take_generation(c, generation, error);
    }
    free(tokenizer);
    free(generation);
    return status;
}

static dsmoe_status take_gguf(conversion *c, dsmoe_error *error)
{
    const gguf *file = c->model->gguf;
    gguf_string name = {NULL, 0};
    bool found;
    c->has_tokenizer = gguf_tokenizer_present(file);
    STATUS_TRY(gguf_get_string(file, "dsmoe.generation_config", &c->generation, &found, error));
    STATUS_TRY(gguf_get_string(file, "general.name", &name, &found, error));
    c->name = found && !memchr(name.bytes, '\0', name.length) ? copy_text(name.bytes, name.length)
                                                              : name_of(c->from);
    if (!c->name) return out_of_memory(c, error);
    STATUS_TRY(gguf_get_int(file, "general.file_type", &c->file_type, &found, error));
    if (c->file_type > INT32_MAX) c->file_type = -1;
    return DSMOE_OK;
}

/* If the change was trained on conversations in a form other than the base's, the result has that form. */
static dsmoe_status take_form(conversion *c, dsmoe_error *error)
{
    const dsmoe_chat_form *learnt = dsmoe_chat_form_recorded(c->change), *has = NULL;
    dsmoe_tokenizer *tokenizer = NULL;
    if (!learnt || !c->has_tokenizer) return DSMOE_OK;
    STATUS_TRY(dsmoe_tokenizer_open(c->from, &tokenizer, error));
    bool same = dsmoe_chat_form_find(tokenizer, NULL, &has, NULL) == DSMOE_OK && has == learnt;
    dsmoe_tokenizer_free(tokenizer);
    if (!same) c->form = learnt;
    return DSMOE_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static dsmoe_status write_gguf(conversion *c, const char *tokenizer, dsmoe_error *error)
{
    const gguf_export e = {.path = c->to,
                           .replace = c->options.replace,
                           .source = &c->source,
                           .mixture = c->mixture,
                           .name = c->name,
                           .tokenizer = tokenizer,
                           .form = c->form,
                           .generation = c->generation.bytes,
                           .generation_length = c->generation.length,
                           .file_type = c->file_type,
                           .imatrix = c->imatrix,
                           .n_without_importance = c->options.n_without_importance,
                           .n_weighed = c->options.n_weighed,
                           .changes = c->options.changes,
                           .n_threads = c->options.n_threads,
                           .progress = c->options.progress,
                           .context = c->options.context};
    return gguf_export_write(&e, error);
}

static dsmoe_status write_folder(const conversion *c, dsmoe_error *error)
{
    const folder_export e = {.folder = c->to,
                             .source = &c->source,
                             .as_is = c->mixture.as_is,
                             .type = c->mixture.type,
                             .tokenizer = c->has_tokenizer ? c->from : NULL,
                             .form = c->form,
                             .generation = c->generation.bytes,
                             .generation_length = c->generation.length,
                             .shard_size = FOLDER_WRITER_SHARD_SIZE,
                             .changes = c->options.changes,
                             .n_threads = c->options.n_threads,
                             .progress = c->options.progress,
                             .context = c->options.context};
    return folder_export_write(&e, error);
}

static dsmoe_status convert(conversion *c, dsmoe_error *error)
{
    STATUS_TRY(dsmoe_model_open(c->from, &c->model, error));
    if (c->options.replace) STATUS_TRY(check_parts(c, error));
    STATUS_TRY(c->model->gguf ? take_gguf(c, error) : take_folder(c, error));
    STATUS_TRY(source_of_model(c->from, c->model, c->to_gguf, &c->source, error));
    if (c->change) {
        STATUS_TRY(merge_open(&c->merge, c->change, c->scale, c->model, error));
        source_change(&c->source, &c->merge);
        STATUS_TRY(take_form(c, error));
    }
    if (!c->to_gguf) return write_folder(c, error);
    return write_gguf(c, c->has_tokenizer ? c->from : NULL, error);
}

static void conversion_free(conversion *c)
{
    source_free(&c->source);
    merge_close(&c->merge);
    imatrix_close(c->imatrix);
    free(c->generation_memory);
    dsmoe_model_free(c->model);
    free(c->name);
}

static dsmoe_status run(conversion *c, const dsmoe_convert_options *options, dsmoe_error *error)
{
    if (!c->from || !*c->from || !c->to || !*c->to)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no model or no target given");
    c->file_type = -1;
    c->to_gguf = ends_with(c->to, strlen(c->to), ".gguf");
    dsmoe_status status = check_target(c, options, NULL, error);
    if (status == DSMOE_OK) status = take_options(c, options, error);
    if (status == DSMOE_OK) status = convert(c, error);
    conversion_free(c);
    return status;
}

dsmoe_status dsmoe_convert(const char *from, const char *to, const dsmoe_convert_options *options,
                           dsmoe_error *error)
{
    conversion c = {.from = from, .to = to};
    return run(&c, options, error);
}

dsmoe_status dsmoe_merge(const char *base, const char *change, double scale, const char *to,
                         const dsmoe_convert_options *options, dsmoe_error *error)
{
    if (!change || !*change)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no adapter or folder to merge given");
    conversion c = {.from = base, .to = to, .change = change, .scale = scale};
    return run(&c, options, error);
}

dsmoe_status dsmoe_model_init_gguf(const char *path, const dsmoe_config *config,
                                   const char *tokenizer, uint64_t seed,
                                   const dsmoe_convert_options *options, dsmoe_error *error)
{
    if (!path || !*path || !config)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no path or no configuration given");
    STATUS_TRY(config_check(config, error));
    conversion c = {.to = path, .to_gguf = true, .file_type = -1, .name = name_of(path)};
    dsmoe_status status =
        c.name ? check_target(&c, options, tokenizer, error) : out_of_memory(&c, error);
    if (status == DSMOE_OK) status = take_options(&c, options, error);
    if (status == DSMOE_OK) status = source_fresh(path, config, seed, &c.source, error);
    if (status == DSMOE_OK) status = write_gguf(&c, tokenizer, error);
    conversion_free(&c);
    return status;
}
