/* train_write.c - writes the files of a trained tokenizer in the form that public loaders read. */
#include "text/bpe_train.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/json_write.h"
#include "formats/mapped_file.h"
#include "formats/partial_file.h"
#include "text/byte_map.h"
#include "text/train_count.h"
#include "text/unicode.h"

const char *const train_special_tokens[TRAIN_SPECIAL] = {"<｜begin▁of▁sentence｜>",
                                                         "<｜end▁of▁sentence｜>"};

/* The cuts of the DeepSeek models in one expression: a line end; letters, and punctuation, each with
 * the space before it; letters of East Asian scripts, which have no spaces; and each digit by itself.
 * On ASCII the pieces are the same as theirs. Elsewhere, theirs cut some words at accented letters and
 * leave Arabic and Hebrew uncut; these do neither. Sets are written as ranges of codes, so that an
 * engine's version of Unicode does not matter. The line end is the first alternative, so no piece
 * contains one. */
#define LETTERS                                                                                    \
    "A-Za-z\\u00aa\\u00b5\\u00ba\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u0559\\u0560-\\u0588"      \
    "\\u0591-\\u05bd\\u05bf-\\u05f2\\u0610-\\u061a\\u0620-\\u0669\\u066e-\\u06d3\\u06d5-\\u06ff"   \
    "\\u0710-\\u167f\\u1681-\\u1fff\\u2c00-\\u2dff\\uff21-\\uff3a\\uff41-\\uff5a"
#define PUNCTUATION                                                                                \
    "!-/:-@\\\\[-`{-~\\u00a1-\\u00a9\\u00ab-\\u00b4\\u00b6-\\u00b9\\u00bb-\\u00bf\\u00d7\\u00f7"   \
    "\\u200d\\u2010-\\u2027\\u2030-\\u205e\\u20a0-\\u20cf\\u2190-\\u2bff\\u2e00-\\u2e7f"           \
    "\\u3001-\\u303f\\ufe0f\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65"           \
    "\\ud83c\\udc00-\\ud83e\\udfff"
#define EAST_ASIAN "\\u2e80-\\u2fff\\u3040-\\ud7ff"

const char train_pre_tokenizer[] =
    "{\n"
    "    \"type\": \"Sequence\",\n"
    "    \"pretokenizers\": [\n"
    "      {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[\\r\\n]|\\\\s?[" LETTERS
    "]+|\\\\s?[" PUNCTUATION "]+|[" EAST_ASIAN
    "]+\"}, \"behavior\": \"Isolated\", \"invert\": false},\n"
    "      {\"type\": \"Digits\", \"individual_digits\": true},\n"
    "      {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    " \"use_regex\": false}\n"
    "    ]\n"
    "  }";

/* ---- tokenizer.json -------------------------------------------------------------------------- */

enum { KEY_MAX = 2 * TRAIN_WORD_MAX + 1 }; /* a byte becomes one or two */

/* A token in the alphabet of byte-level vocabularies. */
static const char *spell(const train_vocabulary *v, size_t id, char key[KEY_MAX])
{
    static const uint32_t codes_end = 0x144; /* one after the last character of the alphabet */
    const train_token *token = &v->tokens[id];
    size_t n = 0;
    for (uint32_t i = 0; i < token->length; i++) {
        int byte = (unsigned char)v->text.bytes[token->offset + i];
        uint32_t code = (uint32_t)byte;
        if (byte_map_byte(code) != byte)
            for (code = 0x100; code < codes_end && byte_map_byte(code) != byte;) code++;
        n += unicode_encode(code, key + n);
    }
    key[n] = '\0';
    return key;
}

static void put_added_tokens(FILE *text, size_t first_id)
{
    fputs("  \"added_tokens\": [", text);
    for (size_t i = 0; i < TRAIN_SPECIAL; i++) {
        fprintf(text, "%s\n    {\"id\": %zu, \"content\": ", i ? "," : "", first_id + i);
        json_write_string(text, train_special_tokens[i]);
        fputs(
            ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false,"
            " \"special\": true}",
            text);
    }
    fputs("\n  ],\n", text);
}

/* BOS and a text after it. */
static void put_text_template(FILE *text, const char *sequence, int type_id)
{
    fputs("\n      {\"SpecialToken\": {\"id\": ", text);
    json_write_string(text, train_special_tokens[0]);
    fprintf(text, ", \"type_id\": %d}},\n      {\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}",
            type_id, sequence, type_id);
}

/* Does the same as add_bos_token, for loaders that read only this file. */
static void put_post_processor(FILE *text, size_t bos)
{
    fputs("  \"post_processor\": {\n    \"type\": \"TemplateProcessing\",\n    \"single\": [",
          text);
    put_text_template(text, "A", 0);
    fputs("\n    ],\n    \"pair\": [", text);
    put_text_template(text, "A", 0);
    fputc(',', text);
    put_text_template(text, "B", 1);
    fputs("\n    ],\n    \"special_tokens\": {\n      ", text);
    json_write_string(text, train_special_tokens[0]);
    fputs(": {\"id\": ", text);
    json_write_string(text, train_special_tokens[0]);
    fprintf(text, ", \"ids\": [%zu], \"tokens\": [", bos);
    json_write_string(text, train_special_tokens[0]);
    fputs("]}\n    }\n  },\n", text);
}

static void put_model(FILE *text, const train_vocabulary *v)
{
    char key[KEY_MAX];
    fputs(
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {",
        text);
    for (size_t i = 0; i < v->count; i++) {
        fputs(i ? ",\n      " : "\n      ", text);
        json_write_string(text, spell(v, i, key));
        fprintf(text, ": %zu", i);
    }
    fputs("\n    },\n    \"merges\": [", text);
    for (size_t i = TRAIN_BYTES; i < v->count; i++) {
        char pair[2 * KEY_MAX];
        snprintf(pair, sizeof pair, "%s ", spell(v, (size_t)v->tokens[i].left, key));
        strcat(pair, spell(v, (size_t)v->tokens[i].right, key));
        fputs(i > TRAIN_BYTES ? ",\n      " : "\n      ", text);
        json_write_string(text, pair);
    }
    fputs("\n    ]\n  }\n", text);
}

static void put_tokenizer(FILE *text, const void *context)
{
    const train_vocabulary *v = context;
    fputs("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n", text);
    put_added_tokens(text, v->count);
    fprintf(text, "  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n", train_pre_tokenizer);
    put_post_processor(text, v->count);
    fputs(
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true,"
        " \"use_regex\": true},\n",
        text);
    put_model(text, v);
    fputs("}\n", text);
}

/* ---- tokenizer_config.json ------------------------------------------------------------------- */

static void put_config(FILE *text, const void *context)
{
    (void)context;
    fputs("{\n  \"add_bos_token\": true,\n  \"add_eos_token\": false,\n  \"bos_token\": ", text);
    json_write_string(text, train_special_tokens[0]);
    fputs(",\n  \"clean_up_tokenization_spaces\": false,\n  \"eos_token\": ", text);
    json_write_string(text, train_special_tokens[1]);
    fputs(",\n  \"model_max_length\": 16384,\n  \"pad_token\": ", text);
    json_write_string(text, train_special_tokens[1]);
    fputs(",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"unk_token\": null\n}\n",
          text);
}

/* ---- both files ------------------------------------------------------------------------------ */

enum { N_FILES = 2 };
static const char *const names[N_FILES] = {"tokenizer_config.json", "tokenizer.json"};
static partial_file_put_fn *const put_file[N_FILES] = {put_config, put_tokenizer};

/* tokenizer.json is written last: a folder that has it has the whole tokenizer. */
dsmoe_status train_write(const char *folder, const train_vocabulary *v, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    char *paths[N_FILES] = {NULL};
    bool ours[N_FILES] = {false}; /* new files, which are removed after a failure */
    for (int i = 0; i < N_FILES && status == DSMOE_OK; i++) {
        paths[i] = mapped_file_path(folder, names[i]);
        if (!paths[i]) status = status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", folder);
        ours[i] = paths[i] && access(paths[i], F_OK) != 0;
    }
    for (int i = 0; i < N_FILES && status == DSMOE_OK; i++)
        status = partial_file_write_text(folder, names[i], put_file[i], v, error);
    for (int i = 0; i < N_FILES; i++) {
        if (status != DSMOE_OK && ours[i]) unlink(paths[i]);
        free(paths[i]);
    }
    return status;
}
