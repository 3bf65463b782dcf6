/* http_socket.c - the socket that a server listens on. */
#include "serve/http_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"

static int make_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* ---- an address and a port ------------------------------------------------------------------ */

/* A listening descriptor, or -1 with errno. */
static int listen_at(const struct addrinfo *address)
{
    int descriptor = make_socket(address->ai_family);
    if (descriptor < 0) return -1;
    /* A restarted server must not have to wait until the old server's connections have timed out. */
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (address->ai_family == AF_INET6) /* "::" listens on IPv4 and IPv6 */
        setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    if (!bind(descriptor, address->ai_addr, address->ai_addrlen) && !listen(descriptor, SOMAXCONN))
        return descriptor;
    int reason = errno;
    close(descriptor);
    errno = reason;
    return -1;
}

static int port_of(int descriptor)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(descriptor, (struct sockaddr *)&address, &size)) return 0;
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)(void *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&address)->sin_port);
}

dsmoe_status http_socket_open(http_socket *listener, const char *scheme, const char *host, int port,
                              dsmoe_error *error)
{
    *listener = (http_socket){.descriptor = -1};
    const char *open = strchr(host, ':') ? "[" : "", *close = *open ? "]" : "";
    if (port < 0 || port > 65535)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "%d is not a port", port);
    if (!*host || strlen(host) > 255)
        return status_fail(error, DSMOE_ERROR_ARGUMENT, "the host to listen on is not a name");
    char digits[8];
    snprintf(digits, sizeof digits, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *addresses;
    int code = getaddrinfo(host, digits, &hints, &addresses);
    if (code)
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot listen there: %s", host,
                           code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    int reason = 0;
    for (struct addrinfo *a = addresses; a && listener->descriptor < 0; a = a->ai_next) {
        listener->descriptor = listen_at(a);
        if (listener->descriptor < 0 && !reason) reason = errno; /* report the first */
    }
    freeaddrinfo(addresses);
    if (listener->descriptor < 0)
        return status_fail(error, DSMOE_ERROR_IO, "%s%s%s:%d: cannot listen there: %s", open, host,
                           close, port, strerror(reason));
    snprintf(listener->url, sizeof listener->url, "%s://%s%s%s:%d", scheme, open, host, close,
             port_of(listener->descriptor));
    return DSMOE_OK;
}

/* ---- a file --------------------------------------------------------------------------------- */

/* Whether the file is a socket on which no process listens any more. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat file;
    if (lstat(address->sun_path, &file) || !S_ISSOCK(file.st_mode)) return false;
    int descriptor = make_socket(AF_UNIX);
    if (descriptor < 0) return false;
    bool refused = connect(descriptor, (const struct sockaddr *)address, sizeof *address) &&
                   errno == ECONNREFUSED;
    close(descriptor);
    return refused;
}

/* Makes the socket file. On failure returns false and sets errno. */
static bool bind_file(int descriptor, const struct sockaddr_un *address)
{
    const struct sockaddr *general = (const struct sockaddr *)address;
    if (!bind(descriptor, general, sizeof *address)) return true;
    if (errno != EADDRINUSE) return false;
    if (is_stale(address) && !unlink(address->sun_path))
        return !bind(descriptor, general, sizeof *address);
    errno = EADDRINUSE;
    return false;
}

dsmoe_status http_socket_open_file(http_socket *listener, const char *path, dsmoe_error *error)
{
    *listener = (http_socket){.descriptor = -1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof address.sun_path)
        return status_fail(error, DSMOE_ERROR_ARGUMENT,
                           "%s: the path of a socket must have 1 to %zu bytes", path,
                           sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    if (!(listener->path = strdup(path)))
        return status_fail(error, DSMOE_ERROR_MEMORY, "%s: out of memory", path);
    struct stat file = {0};
    int descriptor = make_socket(AF_UNIX);
    bool bound = descriptor >= 0 && bind_file(descriptor, &address);
    if (bound && !lstat(path, &file)) {
        listener->device = file.st_dev;
        listener->inode = file.st_ino;
    }
    if (!bound || listen(descriptor, SOMAXCONN)) {
        int reason = errno;
        if (descriptor >= 0) close(descriptor);
        http_socket_forget(listener);
        return status_fail(error, DSMOE_ERROR_IO, "%s: cannot listen there: %s", path,
                           reason == EADDRINUSE ? "the file exists and is in use or is not a socket"
                                                : strerror(reason));
    }
    listener->descriptor = descriptor;
    snprintf(listener->url, sizeof listener->url, "unix:%s", path);
    return DSMOE_OK;
}

void http_socket_forget(http_socket *listener)
{
    struct stat file;
    if (listener->path && listener->inode && !lstat(listener->path, &file) &&
        file.st_dev == listener->device && file.st_ino == listener->inode)
        unlink(listener->path);
    free(listener->path);
    listener->path = NULL;
}
