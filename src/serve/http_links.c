/* http_links.c - the connections of a server. */
#include "serve/http_links.h"

#include <stdlib.h>
#include <sys/socket.h>

http_link *http_links_add(http_links *links, int descriptor, double deadline)
{
    http_link *link = malloc(sizeof *link);
    if (!link) return NULL;
    *link = (http_link){.next = links->first, .descriptor = descriptor, .deadline = deadline};
    if (link->next) link->next->previous = link;
    links->first = link;
    links->n++;
    return link;
}

void http_links_remove(http_links *links, http_link *link)
{
    if (!link) return;
    if (link->next) link->next->previous = link->previous;
    *(link->previous ? &link->previous->next : &links->first) = link->next;
    links->n--;
    free(link);
}

void http_links_end_late(http_links *links, double now)
{
    for (http_link *link = links->first; link; link = link->next)
        if (link->deadline > 0 && link->deadline < now) shutdown(link->descriptor, SHUT_RDWR);
}
