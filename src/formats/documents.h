/* documents.h - text to learn from, document by document: text files, JSON lines, shards of tokens,
 * and folders of such files.
 *
 * A text file is one document. A line of a .jsonl file is one: a text or a conversation (dialogue.h).
 * A .bin file is a shard: 256 int32 (magic, version, count), then tokens. A byte order mark at the start
 * of a file is not part of its text.
 *
 * Folders are looked through in the order of names as bytes, links followed; hidden files are passed
 * over. What cannot be read as text is left out and counted (dsmoe_data_files), given by its own name
 * or not. A file that may not be read is an error. */
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
    bool is_eval; /* given to be held out */
} document_source;

/* Kinds of text: the entries of the folder given (a file `c/list.c` in it is of kind "c"), or, where
 * files were given themselves, their names without suffix. Beyond DOCUMENT_MAX_KINDS the rest is
 * "other". Names are printable UTF-8. */
enum { DOCUMENT_MAX_KINDS = 16 };

typedef struct document_list {
    document_source *sources;
    size_t n_sources;
    dsmoe_data_files files;
    bool has_eval; /* some sources are to be held out; they come last */
    char *kinds[DOCUMENT_MAX_KINDS];
    int n_kinds;
} document_list;

/* Finds the files. A path that is not there, and paths at which there is nothing to read, are errors that
 * name them. */
dsmoe_status document_list_open(const char *const *paths, int n_paths, dsmoe_bad_bytes bad_bytes,
                                document_list *list, dsmoe_error *error);
/* The same with files to be held out after them, none of which may be among the others. */
dsmoe_status document_list_open_with_eval(const char *const *paths, int n_paths,
                                          const char *const *eval_paths, int n_eval_paths,
                                          dsmoe_bad_bytes bad_bytes, document_list *list,
                                          dsmoe_error *error);
void document_list_close(document_list *list); /* allowed on zeros */

/* One document: a text, a conversation or the tokens of a shard; the other two are NULL. Valid during the
 * visit. Tokens are 2 or 4 bytes each, not aligned: take them with memcpy. */
typedef struct document {
    const char *text;
    const dialogue *conversation;
    size_t length; /* bytes of either */
    size_t line;   /* of JSON lines, from 1 on; otherwise 0 */
    const unsigned char *tokens;
    size_t n_tokens;
    int token_size;
    bool is_rest; /* the end of a document whose beginning is elsewhere (document_split.h) */
} document;
typedef dsmoe_status document_visit_fn(void *context, const document *document, dsmoe_error *error);

/* The documents of one source in their order until `visit` fails. Messages name the file, and the
 * line of JSON lines. Empty texts are left out. A file that is no longer as long as it was found,
 * or becomes shorter meanwhile, is an error. */
dsmoe_status document_each(const document_source *source, document_visit_fn *visit, void *context,
                           dsmoe_error *error);
/* The same for the bytes of a file; `path` of the source names it in messages. */
dsmoe_status document_each_in(const document_source *source, const void *bytes, size_t size,
                              document_visit_fn *visit, void *context, dsmoe_error *error);

#endif
