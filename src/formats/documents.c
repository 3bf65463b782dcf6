/* documents.c - finds the files to learn from, and their kinds of text. */
#include "formats/documents.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "formats/document_text.h"
#include "formats/file_set.h"
#include "formats/mapped_file.h"
#include "formats/token_shard.h"

enum { MAX_DEPTH = 64 }; /* of nested folders; bind mounts could make it endless, links cannot */

typedef struct finder {
    document_list *list;
    size_t capacity;
    file_set seen; /* files and folders that were reached */
    bool is_eval;  /* files found now are held out */
} finder;

static dsmoe_status no_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* ---- kinds --------------------------------------------------------------------------------- */

/* A file's name for messages and charts: without suffix, and with ? for bytes that cannot be printed. */
static char *kind_name(const char *name, bool is_folder)
{
    char *kind = strdup(name);
    if (!kind) return NULL;
    char *suffix = is_folder ? NULL : strrchr(kind, '.');
    if (suffix && suffix != kind) *suffix = '\0';
    for (size_t at = 0, length = strlen(kind); at < length;) {
        size_t n = document_character((const unsigned char *)kind + at, length - at);
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

/* The index of a kind, which is added if it is new; -1 if out of memory. If the list is full, the last
 * kind becomes "other", and so do all further ones. */
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
    if (suffix && !strcasecmp(suffix, ".jsonl")) return DOCUMENT_JSONL;
    if (suffix && !strcasecmp(suffix, ".bin")) return DOCUMENT_SHARD;
    return DOCUMENT_TEXT;
}

/* Records a file that is not read. */
static void leave_out(finder *f, const char *path, size_t size, dsmoe_left_out reason)
{
    dsmoe_data_files *files = &f->list->files;
    files->n_left_out[reason]++;
    files->n_bytes_left_out += (int64_t)size;
    if (!*files->first_left_out)
        snprintf(files->first_left_out, sizeof files->first_left_out, "%s", path);
}

/* Why a text is not read; DSMOE_N_LEFT_OUT if it is read. A .jsonl file is never taken for binary: a
 * bad line is an error when it is parsed. */
static dsmoe_left_out check_text(const mapped_file *file, document_form form, size_t n_bad,
                                 dsmoe_bad_bytes bad_bytes)
{
    bool by_share = bad_bytes == DSMOE_BAD_BYTES_REPLACE;
    if (form == DOCUMENT_TEXT && document_is_binary(file->bytes, file->size, n_bad, by_share))
        return DSMOE_LEFT_OUT_BINARY;
    return n_bad > 0 && bad_bytes == DSMOE_BAD_BYTES_SKIP ? DSMOE_LEFT_OUT_BAD_BYTES
                                                          : DSMOE_N_LEFT_OUT;
}

/* Finds why a file is not read, or how many bad bytes it has. A .bin file that begins like a shard must
 * be a valid one. */
static dsmoe_status look_into(const finder *f, const mapped_file *file, const char *path,
                              document_form form, dsmoe_left_out *reason, size_t *n_bad,
                              dsmoe_error *error)
{
    token_shard shard;
    *reason = DSMOE_N_LEFT_OUT;
    *n_bad = 0;
    if (form == DOCUMENT_SHARD) {
        if (token_shard_has_magic(file->bytes, file->size))
            return token_shard_parse(file->bytes, file->size, path, &shard, error);
        *reason = DSMOE_LEFT_OUT_BINARY;
        return DSMOE_OK;
    }
    *n_bad = document_bad_bytes(file->bytes, file->size);
    *reason = check_text(file, form, *n_bad, f->list->files.bad_bytes);
    return mapped_file_intact(file) ? DSMOE_OK : mapped_file_lost(path, error);
}

/* Makes room for one more source. */
static bool reserve_source(finder *f)
{
    document_list *list = f->list;
    if (list->n_sources < f->capacity) return true;
    size_t capacity = f->capacity ? 2 * f->capacity : 16;
    document_source *sources = capacity <= SIZE_MAX / sizeof *sources
                                   ? realloc(list->sources, capacity * sizeof *sources)
                                   : NULL;
    if (!sources) return false;
    list->sources = sources;
    f->capacity = capacity;
    return true;
}

static dsmoe_status add_source(finder *f, const char *path, document_form form, size_t size,
                               size_t n_bad, const char *kind, dsmoe_error *error)
{
    document_list *list = f->list;
    dsmoe_data_files *files = &list->files;
    if (!reserve_source(f)) return no_memory(path, error);
    document_source source = {
        .path = strdup(path),
        .form = form,
        .size = size,
        .is_eval = f->is_eval,
        .replace = n_bad > 0 && files->bad_bytes == DSMOE_BAD_BYTES_REPLACE,
    };
    source.kind = source.path ? add_kind(list, kind) : -1;
    if (source.kind < 0) {
        free(source.path);
        return no_memory(path, error);
    }
    list->sources[list->n_sources++] = source;
    files->n_files++;
    files->n_bytes += (int64_t)size;
    files->n_bad_bytes += (int64_t)n_bad;
    if (n_bad > 0 && files->n_bad_files++ == 0)
        snprintf(files->first_bad, sizeof files->first_bad, "%s", path);
    return DSMOE_OK;
}

/* Adds a regular file that is not empty. */
static dsmoe_status add_file(finder *f, const char *path, const char *kind, dsmoe_error *error)
{
    document_form form = form_of(path);
    mapped_file file;
    STATUS_TRY(mapped_file_open(&file, path, error));
    dsmoe_left_out reason;
    size_t n_bad, size = file.size;
    dsmoe_status status = look_into(f, &file, path, form, &reason, &n_bad, error);
    mapped_file_close(&file);
    if (status != DSMOE_OK) return status;
    if (reason == DSMOE_N_LEFT_OUT) return add_source(f, path, form, size, n_bad, kind, error);
    leave_out(f, path, size, reason);
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

/* Whether a link leads to its own folder or one above: following it would never end. */
static bool leads_back(const char *link)
{
    char *target = realpath(link, NULL), *name = strdup(link);
    char *slash = name ? strrchr(name, '/') : NULL;
    if (slash) *slash = '\0';
    char *folder = slash ? realpath(*name ? name : "/", NULL) : NULL;
    size_t length = target ? strlen(target) : 0;
    if (length == 1) length = 0; /* "/" */
    bool back = target && folder && !strncmp(target, folder, length) &&
                (folder[length] == '/' || folder[length] == '\0');
    free(target);
    free(folder);
    free(name);
    return back;
}

/* A file or folder that was reached before is read only once. If it must be held out, that is an error,
 * since it may be learned from. */
static dsmoe_status pass_over(finder *f, const char *path, size_t size, dsmoe_error *error)
{
    leave_out(f, path, size, DSMOE_LEFT_OUT_TWICE);
    if (!f->is_eval) return DSMOE_OK;
    return status_fail(
        error, DSMOE_ERROR_ARGUMENT,
        "%s: cannot be held out, because it was already given, perhaps as training text: a model must "
        "be measured on other text",
        path);
}

/* Examines an entry of a folder, or the target of its link, and decides whether to read it. */
static dsmoe_status examine(finder *f, const char *path, struct stat *info, bool *reads,
                            dsmoe_error *error)
{
    *reads = false;
    if (lstat(path, info) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot examine the file: %s", path,
                           strerror(errno));
    size_t size = S_ISREG(info->st_mode) ? (size_t)info->st_size : 0;
    if (S_ISLNK(info->st_mode)) {
        if (stat(path, info) != 0 || (S_ISDIR(info->st_mode) && leads_back(path))) {
            leave_out(f, path, 0, DSMOE_LEFT_OUT_LINK);
            return DSMOE_OK;
        }
        size = S_ISREG(info->st_mode) ? (size_t)info->st_size : 0;
    }
    bool is_new;
    if (!file_set_add(&f->seen, info, &is_new)) return no_memory(path, error);
    if (!is_new) return pass_over(f, path, size, error);
    if (!S_ISREG(info->st_mode) && !S_ISDIR(info->st_mode))
        leave_out(f, path, 0, DSMOE_LEFT_OUT_SPECIAL);
    else if (S_ISREG(info->st_mode) && size == 0)
        leave_out(f, path, 0, DSMOE_LEFT_OUT_EMPTY);
    else
        *reads = true;
    return DSMOE_OK;
}

/* Adds an entry of a folder. `kind` is NULL in a given folder: then the entry's name is the kind. */
static dsmoe_status add_entry(finder *f, const char *folder, const char *name, const char *kind,
                              int depth, dsmoe_error *error)
{
    char *path = mapped_file_path(folder, name), *own_kind = NULL;
    struct stat info;
    bool reads = false;
    if (!path) return no_memory(folder, error);
    dsmoe_status status = examine(f, path, &info, &reads, error);
    if (status == DSMOE_OK && reads) {
        bool is_folder = S_ISDIR(info.st_mode);
        if (!kind && !(kind = own_kind = kind_name(name, is_folder)))
            status = no_memory(path, error);
        else if (is_folder)
            status = add_folder(f, path, kind, depth + 1, error);
        else
            status = add_file(f, path, kind, error);
    }
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
    dsmoe_status status = add_file(f, path, kind, error);
    free(kind);
    return status;
}

static dsmoe_status add_given_folder(finder *f, const char *path, dsmoe_error *error)
{
    size_t length = strlen(path);
    char *folder = strdup(path);
    if (!folder) return no_memory(path, error);
    while (length > 1 && folder[length - 1] == '/') folder[--length] = '\0';
    dsmoe_status status = add_folder(f, folder, NULL, 0, error);
    free(folder);
    return status;
}

/* Adds a given path. Unlike an entry of a folder, it must exist and be a file or a folder. */
static dsmoe_status add_given(finder *f, const char *path, dsmoe_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot open the file: %s", path,
                           strerror(errno));
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return status_fail(error, DSMOE_ERROR_IO, "%s: not a regular file", path);
    bool is_new;
    if (!file_set_add(&f->seen, &info, &is_new)) return no_memory(path, error);
    if (!is_new) return pass_over(f, path, S_ISREG(info.st_mode) ? (size_t)info.st_size : 0, error);
    if (S_ISDIR(info.st_mode)) return add_given_folder(f, path, error);
    if (info.st_size > 0) return add_given_file(f, path, error);
    leave_out(f, path, 0, DSMOE_LEFT_OUT_EMPTY);
    return DSMOE_OK;
}

static dsmoe_status nothing_found(const char *path, int n_paths, const document_list *list,
                                  dsmoe_error *error)
{
    char why[512];
    const dsmoe_data_files *files = &list->files;
    dsmoe_data_files_describe(files, why, sizeof why);
    bool may_be_text =
        files->bad_bytes == DSMOE_BAD_BYTES_REPLACE && files->n_left_out[DSMOE_LEFT_OUT_BINARY] > 0;
    return status_fail(
        error, DSMOE_ERROR_FORMAT,
        "%s%s: nothing to read: no text, no .jsonl and no shard of tokens (.bin)%s%s%s", path,
        n_paths > 1 ? " and the other paths" : "", *why ? "; " : "", why,
        may_be_text ? "; if it is text in an encoding other than UTF-8, set bad_bytes to keep"
                    : "");
}

dsmoe_status document_list_open(const char *const *paths, int n_paths, dsmoe_bad_bytes bad_bytes,
                                document_list *list, dsmoe_error *error)
{
    return document_list_open_with_eval(paths, n_paths, NULL, 0, bad_bytes, list, error);
}

/* Adds all files of some paths; there must be at least one file. */
static dsmoe_status add_paths(finder *f, const char *const *paths, int n_paths, dsmoe_error *error)
{
    size_t before = f->list->n_sources;
    for (int i = 0; i < n_paths; i++) STATUS_TRY(add_given(f, paths[i], error));
    if (f->list->n_sources > before) return DSMOE_OK;
    return nothing_found(paths[0], n_paths, f->list, error);
}

dsmoe_status document_list_open_with_eval(const char *const *paths, int n_paths,
                                          const char *const *eval_paths, int n_eval_paths,
                                          dsmoe_bad_bytes bad_bytes, document_list *list,
                                          dsmoe_error *error)
{
    *list = (document_list){.files.bad_bytes = bad_bytes};
    if (n_paths < 1)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "no file or folder to read text from");
    if (bad_bytes < DSMOE_BAD_BYTES_REPLACE || bad_bytes > DSMOE_BAD_BYTES_SKIP)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "bad_bytes must be 0 to 2, not %d",
                           (int)bad_bytes);
    finder f = {.list = list};
    dsmoe_status status = add_paths(&f, paths, n_paths, error);
    list->has_eval = f.is_eval = n_eval_paths > 0;
    if (status == DSMOE_OK && f.is_eval) status = add_paths(&f, eval_paths, n_eval_paths, error);
    file_set_free(&f.seen);
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
