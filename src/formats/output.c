/* output.c - checks before writing: an output must not be an input, an existing file is replaced only
 * if that is allowed and it is of the same kind, and a folder must be new or empty. */
#include "formats/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "formats/folder.h"

enum { HEAD = 4096 }; /* bytes at the start of a file that show its kind */

bool output_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static dsmoe_status out_of_memory(const char *path, dsmoe_error *error)
{
    return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

typedef struct head {
    char bytes[HEAD];
    size_t size;
} head;

static bool begins(const head *h, const char *text)
{
    return h->size >= strlen(text) && !memcmp(h->bytes, text, strlen(text));
}

static bool holds(const head *h, const void *bytes, size_t size)
{
    return memmem(h->bytes, h->size, bytes, size) != NULL;
}

/* A text may begin with "GGUF" too, so the version must be a small little-endian number. */
static bool is_gguf(const head *h)
{
    return begins(h, "GGUF") && h->size >= 8 && h->bytes[4] && !memcmp(h->bytes + 5, "\0\0", 3);
}

static bool is_imatrix(const head *h)
{
    static const char pair[] = "general.type\x08\0\0\0\x07\0\0\0\0\0\0\0imatrix";
    return is_gguf(h) && holds(h, pair, sizeof pair - 1);
}

static bool is_adapter(const head *h)
{
    static const char pair[] = "general.type\x08\0\0\0\x07\0\0\0\0\0\0\0adapter";
    return is_gguf(h) && holds(h, pair, sizeof pair - 1);
}

static bool is_model(const head *h) { return is_gguf(h) && !is_imatrix(h) && !is_adapter(h); }

static bool is_page(const head *h)
{
    static const char mark[] = "<meta name=\"generator\" content=\"dsmoe";
    return begins(h, "<!DOCTYPE html>") && holds(h, mark, sizeof mark - 1);
}

static bool is_conversation(const head *h)
{
    return begins(h, "[\n]") || begins(h, "[\n  {\"role\": \"");
}

static bool is_object(const head *h)
{
    size_t blanks = 0;
    while (blanks < h->size && strchr(" \t\r\n", h->bytes[blanks]) && h->bytes[blanks]) blanks++;
    return blanks < h->size && h->bytes[blanks] == '{';
}

/* tokenizer.json or tokenizer_config.json, recognised by keys in its first bytes. */
static bool is_tokenizer(const head *h)
{
    static const char *const keys[] = {"\"added_tokens\"", "\"vocab\"", "\"tokenizer_class\"",
                                       "\"bos_token\"", "\"add_bos_token\""};
    for (size_t i = 0; is_object(h) && i < sizeof keys / sizeof *keys; i++)
        if (holds(h, keys[i], strlen(keys[i]))) return true;
    return false;
}

static bool is_experts(const head *h)
{
    static const char key[] = "\"experts\"";
    return is_object(h) && holds(h, key, sizeof key - 1);
}

static const struct {
    const char *name;
    bool (*is)(const head *h);
    bool on_the_way; /* written as NAME.partial first */
} kinds[] = {
    [DSMOE_OUTPUT_MODEL] = {"a GGUF file with a model", is_model, true},
    [DSMOE_OUTPUT_IMATRIX] = {"a GGUF file of importances", is_imatrix, true},
    [DSMOE_OUTPUT_PAGE] = {"a page that dsmoe made", is_page, false},
    [DSMOE_OUTPUT_CONVERSATION] = {"a conversation that dsmoe saved", is_conversation, false},
    [DSMOE_OUTPUT_TOKENIZER] = {"a tokenizer", is_tokenizer, true},
    [DSMOE_OUTPUT_ADAPTER] = {"a GGUF file with an adapter", is_adapter, true},
    [DSMOE_OUTPUT_EXPERTS] = {"a choice of experts", is_experts, true},
};

/* `busy`, if it is not NULL, is set if another process has a lock on the file. */
static dsmoe_status read_head(const char *path, head *h, bool *busy, dsmoe_error *error)
{
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ssize_t size = descriptor < 0 ? -1 : read(descriptor, h->bytes, sizeof h->bytes);
    int reason = errno;
    if (busy && descriptor >= 0)
        *busy = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (descriptor >= 0) close(descriptor);
    h->size = size < 0 ? 0 : (size_t)size;
    if (size >= 0) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: already exists and cannot be read: %s", path,
                       strerror(reason));
}

/* ---- a file ---------------------------------------------------------------------------------- */

static dsmoe_status check_inputs(const dsmoe_output *o, const char *partial, dsmoe_error *error)
{
    dsmoe_status status = DSMOE_OK;
    for (int i = 0; i < o->n_inputs && status == DSMOE_OK; i++) {
        const char *input = o->inputs[i];
        if (input && *input &&
            (output_same_file(o->path, input) || output_same_file(partial, input)))
            status = status_fail(error, DSMOE_ERROR_IO,
                                 "%s: is one of the inputs%s; choose another name", o->path,
                                 output_same_file(partial, input) ? " with .partial added" : "");
    }
    return status;
}

/* An existing file may be replaced only if it is empty or of the same kind. */
static dsmoe_status check_present(const dsmoe_output *o, const struct stat *info,
                                  dsmoe_error *error)
{
    head h;
    if (!S_ISREG(info->st_mode))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: already exists and is not a regular file; choose another name",
                           o->path);
    if (info->st_size == 0) return DSMOE_OK;
    STATUS_TRY(read_head(o->path, &h, NULL, error));
    if (!kinds[o->kind].is(&h))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: already exists and is not %s; choose another name, or remove it",
                           o->path, kinds[o->kind].name);
    if (o->replace) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: already exists; --force replaces it", o->path);
}

/* The same check for an existing NAME.partial: an interrupted process may have left it, or it may be some
 * other download. One that is being written now is reported when writing begins. */
static dsmoe_status check_partial(const dsmoe_output *o, const char *partial, dsmoe_error *error)
{
    head h;
    struct stat info;
    bool busy = false;
    if (!kinds[o->kind].on_the_way || lstat(partial, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size == 0)
        return DSMOE_OK;
    STATUS_TRY(read_head(partial, &h, &busy, error));
    if (busy || (o->replace && kinds[o->kind].is(&h))) return DSMOE_OK;
    if (kinds[o->kind].is(&h))
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: already exists and would be overwritten; --force allows it",
                           partial);
    return status_fail(error, DSMOE_ERROR_IO,
                       "%s: already exists and would be overwritten; choose a name other than "
                       "%s, or remove it",
                       partial, o->path);
}

/* Whether names can be added to a folder. */
static dsmoe_status check_writable(const char *path, const char *folder, dsmoe_error *error)
{
    struct stat info;
    int reason = 0;
    if (stat(folder, &info) != 0)
        reason = errno;
    else if (!S_ISDIR(info.st_mode))
        reason = ENOTDIR;
    else if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        reason = errno;
    if (!reason) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: cannot write to the folder %s: %s", path, folder,
                       strerror(reason));
}

dsmoe_status dsmoe_output_check(const dsmoe_output *output, dsmoe_error *error)
{
    struct stat info;
    if (!output || !output->path || !*output->path ||
        (size_t)output->kind >= sizeof kinds / sizeof *kinds)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a file needs a name that is not empty");
    char *partial; /* the name until the file is complete */
    if (asprintf(&partial, "%s.partial", output->path) < 0)
        return out_of_memory(output->path, error);
    dsmoe_status status = check_inputs(output, partial, error);
    if (status == DSMOE_OK) status = check_partial(output, partial, error);
    free(partial);
    STATUS_TRY(status);
    if (stat(output->path, &info) == 0)
        STATUS_TRY(check_present(output, &info, error));
    else if (lstat(output->path, &info) == 0)
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: is a broken symbolic link; choose another name", output->path);
    char *copy = strdup(output->path);
    if (!copy) return out_of_memory(output->path, error);
    status = check_writable(output->path, dirname(copy), error);
    free(copy);
    return status;
}

/* ---- a folder -------------------------------------------------------------------------------- */

typedef struct foreign_name {
    const char *const *own;
    int n_own;
    char name[256]; /* the first name that is not in `own` */
} foreign_name;

static bool is_own(const foreign_name *f, const char *name)
{
    for (int i = 0; i < f->n_own; i++) {
        size_t length = f->own[i] ? strlen(f->own[i]) : 0;
        if (length > 0 && !strncmp(name, f->own[i], length) &&
            (!name[length] || !strcmp(name + length, ".partial")))
            return true;
    }
    return false;
}

static bool visit_name(void *context, const char *name)
{
    foreign_name *f = context;
    if (name[0] == '.' || is_own(f, name)) return true;
    snprintf(f->name, sizeof f->name, "%s", name);
    return false;
}

/* For a folder that does not exist: the nearest existing folder above it must be writable. */
static dsmoe_status check_above(const char *path, dsmoe_error *error)
{
    char *copy = strdup(path), *above = copy;
    if (!copy) return out_of_memory(path, error);
    struct stat info;
    do above = dirname(above);
    while (stat(above, &info) != 0 && errno == ENOENT && strcmp(above, ".") && strcmp(above, "/"));
    dsmoe_status status = check_writable(path, above, error);
    free(copy);
    return status;
}

dsmoe_status dsmoe_output_folder_check(const char *path, const char *const *own, int n_own,
                                       dsmoe_error *error)
{
    if (!path || !*path)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "a folder needs a name that is not empty");
    struct stat info;
    if (stat(path, &info) != 0 && errno == ENOENT) return check_above(path, error);
    foreign_name f = {.own = own, .n_own = n_own};
    STATUS_TRY(folder_each(path, visit_name, &f, error));
    if (*f.name)
        return status_fail(error, DSMOE_ERROR_IO,
                           "%s: already holds '%s'; choose a folder that is new or empty", path,
                           f.name);
    return check_writable(path, path, error);
}

/* ---- room ------------------------------------------------------------------------------------ */

dsmoe_status output_check_room(const char *path, double bytes, dsmoe_error *error)
{
    struct statvfs disk;
    char *copy = strdup(path);
    if (!copy) return out_of_memory(path, error);
    bool known = statvfs(path, &disk) == 0 || statvfs(dirname(copy), &disk) == 0;
    free(copy);
    double left = known ? (double)disk.f_bavail * (double)disk.f_frsize : 0;
    if (!known || bytes <= left) return DSMOE_OK;
    return status_fail(error, DSMOE_ERROR_IO, "%s: needs %.1f MB, and the disk has %.1f MB left",
                       path, bytes / 1e6, left / 1e6);
}
