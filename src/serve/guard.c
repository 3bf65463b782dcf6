/* guard.c - which requests are allowed.
 *
 * A web page cannot read the answers of a server on this machine unless the server allows its origin. But it
 * can send requests, and by pointing its own name at 127.0.0.1 it can make the browser take this server for
 * the page's own (DNS rebinding). So the server refuses an unknown Host, and the Origin of other pages. */
#include "serve/guard.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/status.h"
#include "formats/whole_file.h"
#include "serve/page.h"

enum {
    KEY_BYTES = 512,   /* the most that a key may have */
    NAME_BYTES = 256,  /* of a host; DNS allows 253 */
    KEY_FILE = 1 << 20 /* bytes of a file of keys */
};

/* ---- keys ----------------------------------------------------------------------------------- */

/* A key is padded with zeros to KEY_BYTES + 1, so that comparing takes the same time for every length. */
static dsmoe_status add_key(guard *g, const char *key, size_t length, const char *where,
                            dsmoe_error *error)
{
    if (length < 1 || length > KEY_BYTES)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%s: a key must have 1 to %d bytes", where,
                           KEY_BYTES);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)key[i] < 0x20 || key[i] == 0x7f)
            return status_fail(error, DSMOE_ERROR_ARGUMENT,
                               "%s: a key must not contain control characters", where);
    char *copy = calloc(1, KEY_BYTES + 1);
    char **keys = copy ? realloc(g->keys, (g->n_keys + 1) * sizeof *keys) : NULL;
    if (!keys) {
        free(copy);
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", where);
    }
    memcpy(copy, key, length);
    g->keys = keys;
    g->keys[g->n_keys++] = copy;
    return DSMOE_OK;
}

dsmoe_status guard_add_key(guard *g, const char *key, dsmoe_error *error)
{
    return add_key(g, key, strlen(key), "API key", error);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

dsmoe_status guard_add_key_file(guard *g, const char *path, dsmoe_error *error)
{
    whole_file file;
    STATUS_TRY(whole_file_read(&file, path, KEY_FILE, error));
    dsmoe_status status = DSMOE_OK;
    size_t n_before = g->n_keys;
    int number = 1;
    for (size_t at = 0, next; at < file.size && status == DSMOE_OK; at = next, number++) {
        size_t end = at;
        while (end < file.size && file.bytes[end] != '\n') end++;
        next = end + 1;
        while (at < end && is_blank(file.bytes[at])) at++;
        while (end > at && is_blank(file.bytes[end - 1])) end--;
        if (at == end || file.bytes[at] == '#') continue;
        char where[400];
        snprintf(where, sizeof where, "%.360s, line %d", path, number);
        status = add_key(g, file.bytes + at, end - at, where, error);
    }
    whole_file_free(&file);
    if (status == DSMOE_OK && g->n_keys == n_before)
        return status_fail(error, DSMOE_ERROR_FORMAT, "%s: there is no key in the file", path);
    return status;
}

void guard_free(guard *g)
{
    for (size_t i = 0; i < g->n_keys; i++) free(g->keys[i]);
    free(g->keys);
    g->keys = NULL;
    g->n_keys = 0;
}

/* Whether the text is one of the keys. How long this takes reveals only how many keys there are. */
static bool is_key(const guard *g, const char *text, size_t length)
{
    char padded[KEY_BYTES + 1] = {0};
    if (length < 1 || length > KEY_BYTES) return false;
    memcpy(padded, text, length);
    unsigned found = 0;
    for (size_t i = 0; i < g->n_keys; i++) {
        volatile unsigned char differs = 0; /* volatile: the loop must not end early */
        for (size_t j = 0; j < sizeof padded; j++)
            differs = (unsigned char)(differs | (padded[j] ^ g->keys[i][j]));
        found |= ((unsigned)differs - 1) >> 31;
    }
    return found;
}

static bool has_key(const guard *g, const guard_request *r)
{
    bool found = false;
    const char *given = r->authorization;
    if (given && !strncasecmp(given, "Bearer", 6) && is_blank(given[6])) {
        given += 6;
        while (is_blank(*given)) given++;
        size_t length = strlen(given);
        while (length && is_blank(given[length - 1])) length--;
        found |= is_key(g, given, length);
    }
    if (r->api_key) found |= is_key(g, r->api_key, strlen(r->api_key));
    return found;
}

bool guard_is_public(const char *path)
{
    if (!path || path[0] != '/') return false;
    return !strcmp(path, "/health") || !strcmp(path, "/v1/health") || page_find(path);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* "name:port" split in two: the name in lower case without a final dot, and the port. */
typedef struct authority {
    char name[NAME_BYTES];
    int port;       /* -1: none */
    bool bracketed; /* "[::1]", without the brackets in `name` */
} authority;

static bool read_port(authority *a, const char *text)
{
    if (!*text) return true;
    size_t length = strspn(text + 1, "0123456789");
    if (*text != ':' || length < 1 || length > 5 || text[1 + length]) return false;
    a->port = atoi(text + 1);
    return a->port <= 65535;
}

static bool read_authority(authority *a, const char *text)
{
    *a = (authority){.port = -1, .bracketed = text[0] == '['};
    if (a->bracketed) text++;
    size_t length = strcspn(text, a->bracketed ? "]" : ":");
    if (length < 1 || length >= sizeof a->name) return false;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c >= 0x7f || strchr("/@\\?#", c)) return false;
        a->name[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    text += length;
    if (a->bracketed && *text++ != ']') return false;
    if (!a->bracketed && length > 1 && a->name[length - 1] == '.') a->name[length - 1] = '\0';
    return read_port(a, text);
}

static bool is_address(const authority *a)
{
    unsigned char bytes[16];
    return inet_pton(a->bracketed ? AF_INET6 : AF_INET, a->name, bytes) == 1;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), n = strlen(end);
    return length > n && !strcmp(text + length - n, end);
}

static bool is_own_name(const char *name)
{
    char own[NAME_BYTES] = "";
    if (gethostname(own, sizeof own - 6) || !*own) return false;
    if (!strcasecmp(name, own)) return true;
    return !strcasecmp(name, strcat(own, ".local"));
}

static bool host_passes(const guard *g, const guard_request *r)
{
    if (r->local) return true;
    if (!r->host) return !r->origin; /* all browsers send a Host */
    authority host, other;
    if (!read_authority(&host, r->host)) return false;
    if (is_address(&host)) return true;
    if (host.bracketed) return false;
    if (!strcmp(host.name, "localhost") || ends_with(host.name, ".localhost")) return true;
    for (size_t i = 0; i < g->n_hosts; i++)
        if (read_authority(&other, g->hosts[i]) && !strcmp(host.name, other.name)) return true;
    return is_own_name(host.name);
}

/* ---- origins -------------------------------------------------------------------------------- */

static const char *after_scheme(const char *origin, int *port)
{
    *port = 80;
    if (!strncasecmp(origin, "http://", 7)) return origin + 7;
    *port = 443;
    if (!strncasecmp(origin, "https://", 8)) return origin + 8;
    return NULL;
}

/* Whether an origin is this machine itself, not a name that only begins like one of its names. */
static bool is_loopback(const authority *a, const char *text)
{
    unsigned char bytes[16];
    if (a->bracketed)
        return inet_pton(AF_INET6, a->name, bytes) == 1 &&
               !memcmp(bytes, &in6addr_loopback, sizeof bytes);
    size_t length = strcspn(text, ":");
    if (length && text[length - 1] == '.') return false;
    if (inet_pton(AF_INET, a->name, bytes) == 1) return bytes[0] == 127;
    return !strcmp(a->name, "localhost");
}

static bool origin_is_ours(const guard_request *r)
{
    int port;
    const char *text = after_scheme(r->origin, &port);
    authority page, host;
    if (!text || !read_authority(&page, text)) return false;
    if (is_loopback(&page, text)) return true;
    if (!r->host || !read_authority(&host, r->host)) return false;
    return page.bracketed == host.bracketed && !strcmp(page.name, host.name) &&
           (page.port < 0 ? port : page.port) == (host.port < 0 ? port : host.port);
}

const char *guard_allowed_origin(const guard *g, const guard_request *r)
{
    if (!r->origin) return NULL;
    for (size_t i = 0; i < g->n_origins; i++)
        if (!strcmp(g->origins[i], "*")) return "*";
    if (origin_is_ours(r)) return r->origin;
    for (size_t i = 0; i < g->n_origins; i++)
        if (!strcasecmp(g->origins[i], r->origin)) return r->origin;
    return NULL;
}

const char *guard_check(const guard *g, const guard_request *r, int *status)
{
    *status = 403;
    if (!host_passes(g, r)) return "the header Host does not name this server";
    if (r->origin && !guard_allowed_origin(g, r))
        return "pages of this origin may not use the server";
    *status = 401;
    if (!g->n_keys || (r->method && !strcmp(r->method, "OPTIONS")) || guard_is_public(r->path))
        return NULL;
    return has_key(g, r) ? NULL : "a valid API key is missing";
}
