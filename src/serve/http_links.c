/* http_links.c - the connections of a server. */
#include "serve/http_links.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"

struct http_link {
    http_link *previous, *next;
    int descriptor;
    double deadline; /* for its request to arrive, on the clock of base/clock.h; 0: none */
};

struct http_links {
    double seconds; /* from the beginning of a request to its deadline; 0: no limit */
    pthread_t watcher;
    pthread_mutex_t lock; /* guards the fields below and all connections */
    pthread_cond_t wake;
    bool ends;
    http_link *first;
    int n;
};

/* ---- late connections --------------------------------------------------------------------------- */

/* Shuts down late connections; MHD then sees their end. */
static void end_late(const http_links *links, double now)
{
    for (const http_link *link = links->first; link; link = link->next)
        if (link->deadline > 0 && link->deadline < now) shutdown(link->descriptor, SHUT_RDWR);
}

static void *watch(void *context)
{
    http_links *links = context;
    pthread_mutex_lock(&links->lock);
    while (!links->ends) {
        end_late(links, clock_seconds());
        struct timespec next;
        clock_gettime(CLOCK_MONOTONIC, &next);
        next.tv_sec++;
        pthread_cond_timedwait(&links->wake, &links->lock, &next);
    }
    pthread_mutex_unlock(&links->lock);
    return NULL;
}

/* ---- all connections ---------------------------------------------------------------------------- */

http_links *http_links_create(double seconds)
{
    http_links *links = calloc(1, sizeof *links);
    if (!links) return NULL;
    links->seconds = seconds;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&links->lock, NULL);
    pthread_cond_init(&links->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    if (!pthread_create(&links->watcher, NULL, watch, links)) return links;
    pthread_cond_destroy(&links->wake);
    pthread_mutex_destroy(&links->lock);
    free(links);
    return NULL;
}

void http_links_free(http_links *links)
{
    if (!links) return;
    pthread_mutex_lock(&links->lock);
    links->ends = true;
    pthread_cond_signal(&links->wake);
    pthread_mutex_unlock(&links->lock);
    pthread_join(links->watcher, NULL);
    pthread_cond_destroy(&links->wake);
    pthread_mutex_destroy(&links->lock);
    free(links);
}

int http_links_count(http_links *links)
{
    pthread_mutex_lock(&links->lock);
    int n = links->n;
    pthread_mutex_unlock(&links->lock);
    return n;
}

/* ---- one connection ---------------------------------------------------------------------------- */

static double next_deadline(const http_links *links)
{
    return links->seconds > 0 ? clock_seconds() + links->seconds : 0;
}

http_link *http_links_add(http_links *links, int descriptor)
{
    http_link *link = malloc(sizeof *link);
    if (!link) return NULL;
    *link = (http_link){.descriptor = descriptor, .deadline = next_deadline(links)};
    pthread_mutex_lock(&links->lock);
    link->next = links->first;
    if (link->next) link->next->previous = link;
    links->first = link;
    links->n++;
    pthread_mutex_unlock(&links->lock);
    return link;
}

void http_links_remove(http_links *links, http_link *link)
{
    if (!link) return;
    pthread_mutex_lock(&links->lock);
    if (link->next) link->next->previous = link->previous;
    *(link->previous ? &link->previous->next : &links->first) = link->next;
    links->n--;
    pthread_mutex_unlock(&links->lock);
    free(link);
}

static void set_deadline(http_links *links, http_link *link, double deadline)
{
    if (!link) return;
    pthread_mutex_lock(&links->lock);
    link->deadline = deadline;
    pthread_mutex_unlock(&links->lock);
}

void http_link_begin(http_links *links, http_link *link)
{
    set_deadline(links, link, next_deadline(links));
}

void http_link_end(http_links *links, http_link *link) { set_deadline(links, link, 0); }

void http_link_extend(http_links *links, http_link *link, double seconds)
{
    if (!link) return;
    pthread_mutex_lock(&links->lock);
    if (link->deadline > 0) link->deadline += seconds;
    pthread_mutex_unlock(&links->lock);
}
