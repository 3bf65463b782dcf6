/* tokenizer_config.c - replaces and recognises the chat form in a tokenizer_config.json. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/json_write.h"
#include "formats/mapped_file.h"
#include "text/chat_form.h"
#include "text/template_file.h"
#include "text/tokenizer_files.h"
#include "text/vocabulary.h"

/* ---- replacing the form -------------------------------------------------------------------------- */

static void put_member(FILE *text, const dsmoe_tokenizer *t, const char *name, int32_t id)
{
    size_t length;
    const char *piece = id >= 0 ? vocabulary_piece(&t->bpe.vocabulary, id, &length) : NULL;
    if (!piece) return;
    fprintf(text, "\"%s\": ", name);
    json_write_text(text, piece, length);
    fputs(", ", text);
}

/* Makes an equivalent config for a tokenizer that has none. */
static dsmoe_status make_config(const tokenizer_files *files, char **config, size_t *length,
                                dsmoe_error *error)
{
    dsmoe_tokenizer *t;
    STATUS_TRY(tokenizer_parse(&files->text, NULL, &t, error));
    FILE *text = open_memstream(config, length);
    bool written = text != NULL;
    if (text) {
        fputc('{', text);
        put_member(text, t, "bos_token", t->bos);
        put_member(text, t, "eos_token", t->eos);
        fprintf(text, "\"add_bos_token\": %s}", t->adds_bos ? "true" : "false");
        written = !ferror(text);
        if (fclose(text) != 0) written = false;
        if (!written) free(*config);
    }
    dsmoe_tokenizer_free(t);
    if (written) return DSMOE_OK;
    *config = NULL;
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", files->text.source);
}

static dsmoe_status put_form(tokenizer_files *files, const dsmoe_chat_form *form,
                             const tokenizer_text *config, dsmoe_error *error)
{
    byte_buffer template = {0};
    char *text = NULL;
    size_t length;
    dsmoe_status status = chat_form_template(form, &template, error);
    if (status == DSMOE_OK)
        status = template_put(config, template.bytes, template.length, &text, &length, error);
    byte_buffer_free(&template);
    STATUS_TRY(status);
    if (!text)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: the top level must be an object",
                           config->source);
    free(files->with_template);
    files->with_template = text;
    files->config = (tokenizer_text){text, length, config->source};
    return DSMOE_OK;
}

dsmoe_status tokenizer_files_set_form(tokenizer_files *files, const dsmoe_chat_form *form,
                                      dsmoe_error *error)
{
    if (files->config.bytes) return put_form(files, form, &files->config, error);
    char *made;
    tokenizer_text config = {.source = files->text.source};
    STATUS_TRY(make_config(files, &made, &config.length, error));
    config.bytes = made;
    dsmoe_status status = put_form(files, form, &config, error);
    free(made);
    return status;
}

/* ---- recognising the form ------------------------------------------------------------------------ */

enum { MAX_SIZE = 8 << 20 }; /* bytes of a file */

static bool read_file(const char *folder, const char *name, whole_file *file)
{
    char *path = mapped_file_path(folder, name);
    bool is_read = path && whole_file_read(file, path, MAX_SIZE, NULL) == DSMOE_OK;
    free(path);
    return is_read;
}

/* The form in the text of a tokenizer_config.json; NULL if there is none. */
static const dsmoe_chat_form *form_of_config(const whole_file *file)
{
    const dsmoe_chat_form *form = NULL;
    json_node *root;
    if (json_node_parse_wide(file->bytes, file->size, "tokenizer_config.json", &root, NULL))
        return NULL;
    bool is_object = json_node_kind(root) == JSON_KIND_OBJECT;
    const json_node *node = is_object ? json_node_member(root, "chat_template") : NULL;
    if (node && json_node_kind(node) == JSON_KIND_STRING) {
        size_t length;
        const char *text = json_node_string(node, &length);
        chat_form_recognise(text, length, &form, NULL);
    }
    json_node_free(root);
    return form;
}

const dsmoe_chat_form *dsmoe_chat_form_recorded(const char *folder)
{
    const dsmoe_chat_form *form = NULL;
    whole_file file;
    if (read_file(folder, TEMPLATE_FILE_NAME, &file)) {
        chat_form_recognise(file.bytes, file.size, &form, NULL);
        whole_file_free(&file);
    } else if (read_file(folder, "tokenizer_config.json", &file)) {
        form = form_of_config(&file);
        whole_file_free(&file);
    }
    return form;
}
