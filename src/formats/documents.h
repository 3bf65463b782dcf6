/* documents.h - text to learn from, document by document: text files, JSON lines, shards of tokens,
 * and folders of such files.
 *
 * A text file is one document. Each line of a .jsonl file is one: a text or a conversation (dialogue.h).
 * A .bin file is a shard: 256 int32 (magic, version, count), then tokens. A byte order mark at the start
 * of a file is not part of its text.
 *
 * Folders are searched in the byte order of names. Links are followed and hidden files skipped. Files
 * that are not text are left out and counted (dsmoe_data_files), even if they were named directly. A
 * file without permission to read is an error. */
#ifndef DSMOE_FORMATS_DOCUMENTS_H
#define DSMOE_FORMATS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "formats/dialogue.h"

typedef enum document_form { DOCUMENT_TEXT, DOCUMENT_JSONL, DOCUMENT_SHARD } document_form;

typedef struct document_source {
    char *path;
    document_form form;
    size_t size;  /* bytes of the file */
    int kind;     /* index into `kinds` */
    bool replace; /* it has bad bytes, and they become U+FFFD */
    bool is_eval; /* held out, since it was given as such */
} document_source;

/* Kinds of text are the entries of a given folder (a file `c/list.c` in it is of kind "c"); for a given
 * file, its name without suffix. Kinds beyond DOCUMENT_MAX_KINDS are "other". Names are printable
 * UTF-8. */
enum { DOCUMENT_MAX_KINDS = 16 };

typedef struct document_list {
    document_source *sources;
    size_t n_sources;
    dsmoe_data_files files;
    bool has_eval; /* some sources are held out; they come last */
    char *kinds[DOCUMENT_MAX_KINDS];
    int n_kinds;
} document_list;

/* Finds the files. It is an error if a path does not exist, or if the paths hold nothing to read; the
 * message names them. */
dsmoe_status document_list_open(const char *const *paths, int n_paths, dsmoe_bad_bytes bad_bytes,
                                document_list *list, dsmoe_error *error);
/* The same, followed by files to be held out, none of which may be among the first ones. */
dsmoe_status document_list_open_with_eval(const char *const *paths, int n_paths,
                                          const char *const *eval_paths, int n_eval_paths,
                                          dsmoe_bad_bytes bad_bytes, document_list *list,
                                          dsmoe_error *error);
void document_list_close(document_list *list); /* allowed on zeros */

/* One document: a text, a conversation or the tokens of a shard; the other two are NULL. Valid during the
 * visit. Tokens are 2 or 4 bytes each, not aligned: read them with memcpy. */
typedef struct document {
    const char *text;
    const dialogue *conversation;
    size_t length; /* bytes of the text, or of all texts of the conversation */
    size_t line;   /* line number in a .jsonl file, from 1; otherwise 0 */
    const unsigned char *tokens;
    size_t n_tokens;
    int token_size;
    bool is_rest; /* the end of a document whose beginning is elsewhere (document_split.h) */
} document;
typedef dsmoe_status document_visit_fn(void *context, const document *document, dsmoe_error *error);

/* Passes the documents of one source to `visit` in order, until it fails. Messages name the file, and
 * the line of a .jsonl file. Empty texts are left out. It is an error if the file's length has changed
 * since it was found, or the file changes while it is read. */
dsmoe_status document_each(const document_source *source, document_visit_fn *visit, void *context,
                           dsmoe_error *error);
/* The same for the bytes of a file; the source's path names it in messages. */
dsmoe_status document_each_in(const document_source *source, const void *bytes, size_t size,
                              document_visit_fn *visit, void *context, dsmoe_error *error);

#endif
