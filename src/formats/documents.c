/* documents.c - finding the files to learn from, and what kinds of text they are. */
#include "formats/documents.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "formats/mapped_file.h"
#include "formats/token_shard.h"

enum { MAX_DEPTH = 64 }; /* of folders in folders; links cannot make it endless, bind mounts can */

typedef struct finder {
    document_list *list;
    size_t capacity;
} finder;

static dsmoe_status no_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* ---- what is text -------------------------------------------------------------------------- */

/* Bytes of the character that the text begins with; 0 if it is none, or NUL, which no text has. */
static size_t character_length(const unsigned char *text, size_t length)
{
    return text[0] ? utf8_character(text, length) : 0;
}

/* How many bytes from the start are text; eight at a time where all are ASCII. */
static size_t text_length(const unsigned char *text, size_t length)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    size_t at = 0;
    while (at < length) {
        uint64_t word;
        if (length - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if (!(word & tops) && !((word - ones) & tops)) { /* no high bit, no NUL */
                at += sizeof word;
                continue;
            }
        }
        size_t n = character_length(text + at, length - at);
        if (n == 0) break;
        at += n;
    }
    return at;
}

/* ---- kinds --------------------------------------------------------------------------------- */

/* A file's name in a message or a chart: without suffix, and with ? for what cannot be printed. */
static char *kind_name(const char *name, bool is_folder)
{
    char *kind = strdup(name);
    if (!kind) return NULL;
    char *suffix = is_folder ? NULL : strrchr(kind, '.');
    if (suffix && suffix != kind) *suffix = '\0';
    for (size_t at = 0, length = strlen(kind); at < length;) {
        size_t n = character_length((const unsigned char *)kind + at, length - at);
        if (n == 0 || (n == 1 && ((unsigned char)kind[at] < 0x20 || kind[at] == 0x7f)))
            kind[at] = '?';
        at += n ? n : 1;
    }
    return kind;
}

static int find_kind(const document_list *list, const char *name)
{
    for (int i = 0; i < list->n_kinds; i++)
        if (!strcmp(list->kinds[i], name)) return i;
    return -1;
}

/* The number of a kind, a new one if need be; -1 if there is no memory. Where there is no place for
 * one more, the last kind becomes "other" and takes all that follow. */
static int add_kind(document_list *list, const char *name)
{
    int kind = find_kind(list, name);
    if (kind >= 0) return kind;
    bool full = list->n_kinds == DOCUMENT_MAX_KINDS;
    if (full && (kind = find_kind(list, "other")) >= 0) return kind;
    char *copy = strdup(full ? "other" : name);
    if (!copy) return -1;
    kind = full ? DOCUMENT_MAX_KINDS - 1 : list->n_kinds++;
    if (full) free(list->kinds[kind]);
    list->kinds[kind] = copy;
    return kind;
}

/* ---- files --------------------------------------------------------------------------------- */

static document_form form_of(const char *path)
{
    const char *suffix = strrchr(path, '.');
    if (suffix && !strcmp(suffix, ".jsonl")) return DOCUMENT_JSONL;
    if (suffix && !strcmp(suffix, ".bin")) return DOCUMENT_SHARD;
    return DOCUMENT_TEXT;
}

/* Whether a file has the form that its name promises. In a folder another form is no error: who
 * gives a folder of sources does not mean the pictures in it. */
static dsmoe_status check_form(const char *path, document_form form, const mapped_file *file,
                               bool given, bool *fits, dsmoe_error *error)
{
    token_shard shard;
    *fits = true;
    switch (form) {
    case DOCUMENT_JSONL: break; /* a line that is none is an error when its turn comes */
    case DOCUMENT_SHARD:
        *fits = token_shard_has_magic(file->bytes, file->size);
        if (*fits || given) return token_shard_parse(file->bytes, file->size, path, &shard, error);
        break;
    case DOCUMENT_TEXT: {
        size_t length = text_length(file->bytes, file->size);
        *fits = length == file->size;
        if (!*fits && given)
            return status_fail(error, DSMOE_ERROR_FORMAT,
                               "%s: not UTF-8 text: byte 0x%02x at offset %zu", path,
                               file->bytes[length], length);
        break;
    }
    }
    return DSMOE_OK;
}

static dsmoe_status add_source(finder *f, const char *path, document_form form, size_t size,
                               const char *kind, dsmoe_error *error)
{
    document_list *list = f->list;
    if (list->n_sources == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        document_source *sources = capacity <= SIZE_MAX / sizeof *sources
                                       ? realloc(list->sources, capacity * sizeof *sources)
                                       : NULL;
        if (!sources) return no_memory(path, error);
        list->sources = sources;
        f->capacity = capacity;
    }
    document_source source = {.path = strdup(path), .form = form, .size = size};
    source.kind = source.path ? add_kind(list, kind) : -1;
    if (source.kind < 0) {
        free(source.path);
        return no_memory(path, error);
    }
    list->sources[list->n_sources++] = source;
    return DSMOE_OK;
}

/* A regular file, `given` by its name or found in a folder. */
static dsmoe_status add_file(finder *f, const char *path, bool given, const char *kind,
                             dsmoe_error *error)
{
    document_form form = form_of(path);
    mapped_file file;
    STATUS_TRY(mapped_file_open(&file, path, error));
    bool fits;
    size_t size = file.size;
    dsmoe_status status = check_form(path, form, &file, given, &fits, error);
    mapped_file_close(&file);
    if (status != DSMOE_OK) return status;
    if (fits) return add_source(f, path, form, size, kind, error);
    f->list->n_left_out++;
    return DSMOE_OK;
}

/* ---- folders ------------------------------------------------------------------------------- */

typedef struct name_list {
    char **names;
    size_t count, capacity;
} name_list;

static void names_free(name_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->names[i]);
    free(list->names);
    *list = (name_list){0};
}

static bool names_add(name_list *list, const char *name)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        char **names = realloc(list->names, capacity * sizeof *names);
        if (!names) return false;
        list->names = names;
        list->capacity = capacity;
    }
    list->names[list->count] = strdup(name);
    return list->names[list->count] && ++list->count;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The entries of a folder that are not hidden, sorted. */
static dsmoe_status names_read(const char *folder, name_list *list, dsmoe_error *error)
{
    *list = (name_list){0};
    DIR *stream = opendir(folder);
    if (!stream)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the folder: %s", folder,
                           strerror(errno));
    const struct dirent *entry;
    dsmoe_status status = DSMOE_OK;
    while (status == DSMOE_OK && (errno = 0, entry = readdir(stream)))
        if (entry->d_name[0] != '.' && !names_add(list, entry->d_name))
            status = no_memory(folder, error);
    if (status == DSMOE_OK && errno != 0)
        status = status_fail(error, DSMOE_ERROR_IO, "%s: cannot read the folder: %s", folder,
                             strerror(errno));
    closedir(stream);
    if (status != DSMOE_OK)
        names_free(list);
    else if (list->count > 0)
        qsort(list->names, list->count, sizeof *list->names, compare_names);
    return status;
}

static dsmoe_status add_folder(finder *f, const char *folder, const char *kind, int depth,
                               dsmoe_error *error);

/* One entry of a folder. Without a kind the folder is one that was given: the entry is the kind. */
static dsmoe_status add_entry(finder *f, const char *folder, const char *name, const char *kind,
                              int depth, dsmoe_error *error)
{
    char *path = mapped_file_path(folder, name), *own_kind = NULL;
    struct stat info;
    dsmoe_status status = DSMOE_OK;
    if (!path) return no_memory(folder, error);
    if (lstat(path, &info) != 0) {
        status = status_fail(error, DSMOE_ERROR_IO, "%s: cannot examine the file: %s", path,
                             strerror(errno));
        goto done;
    }
    bool is_folder = S_ISDIR(info.st_mode);
    if (!kind && !(kind = own_kind = kind_name(name, is_folder)))
        status = no_memory(path, error);
    else if (is_folder)
        status = add_folder(f, path, kind, depth + 1, error);
    else if (S_ISREG(info.st_mode) && info.st_size > 0)
        status = add_file(f, path, false, kind, error);
    else
        f->list->n_left_out++;
done:
    free(own_kind);
    free(path);
    return status;
}

static dsmoe_status add_folder(finder *f, const char *folder, const char *kind, int depth,
                               dsmoe_error *error)
{
    if (depth > MAX_DEPTH)
        return status_fail(error, DSMOE_ERROR_IO, "%s: folders nested deeper than %d", folder,
                           MAX_DEPTH);
    name_list names;
    STATUS_TRY(names_read(folder, &names, error));
    dsmoe_status status = DSMOE_OK;
    for (size_t i = 0; i < names.count && status == DSMOE_OK; i++)
        status = add_entry(f, folder, names.names[i], kind, depth, error);
    names_free(&names);
    return status;
}

/* ---- the list ------------------------------------------------------------------------------ */

static dsmoe_status add_given_file(finder *f, const char *path, dsmoe_error *error)
{
    const char *slash = strrchr(path, '/');
    char *kind = kind_name(slash ? slash + 1 : path, false);
    if (!kind) return no_memory(path, error);
    dsmoe_status status = add_file(f, path, true, kind, error);
    free(kind);
    return status;
}

static dsmoe_status add_given_folder(finder *f, const char *path, dsmoe_error *error)
{
    const document_list *list = f->list;
    size_t n_sources = list->n_sources, n_left_out = list->n_left_out, length = strlen(path);
    char *folder = strdup(path);
    if (!folder) return no_memory(path, error);
    while (length > 1 && folder[length - 1] == '/') folder[--length] = '\0';
    dsmoe_status status = add_folder(f, folder, NULL, 0, error);
    free(folder);
    if (status != DSMOE_OK || list->n_sources > n_sources) return status;
    return status_fail(
        error, DSMOE_ERROR_FORMAT,
        "%s: nothing to read in this folder: no UTF-8 text, no .jsonl and no shard of "
        "tokens (.bin), only %zu other files",
        path, list->n_left_out - n_left_out);
}

dsmoe_status document_list_open(const char *const *paths, int n_paths, document_list *list,
                                dsmoe_error *error)
{
    *list = (document_list){0};
    if (n_paths < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no file or folder to read text from");
    finder f = {.list = list};
    dsmoe_status status = DSMOE_OK;
    for (int i = 0; i < n_paths && status == DSMOE_OK; i++) {
        struct stat info;
        if (stat(paths[i], &info) != 0)
            status = status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the file: %s", paths[i],
                                 strerror(errno));
        else if (S_ISDIR(info.st_mode))
            status = add_given_folder(&f, paths[i], error);
        else
            status = add_given_file(&f, paths[i], error);
    }
    if (status != DSMOE_OK) document_list_close(list);
    return status;
}

void document_list_close(document_list *list)
{
    for (size_t i = 0; i < list->n_sources; i++) free(list->sources[i].path);
    free(list->sources);
    for (int i = 0; i < list->n_kinds; i++) free(list->kinds[i]);
    *list = (document_list){0};
}
