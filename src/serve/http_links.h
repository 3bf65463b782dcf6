/* http_links.h - the connections of a server, so that one whose request takes for ever can be ended: the HTTP library's own
 * limit begins again with every byte. Whoever calls holds a lock. */
#ifndef DSMOE_SERVE_HTTP_LINKS_H
#define DSMOE_SERVE_HTTP_LINKS_H

typedef struct http_link {
    struct http_link *previous, *next;
    int descriptor;
    double deadline; /* by which its request must be in, on the clock of base/clock.h; 0: none */
} http_link;

typedef struct http_links {
    http_link *first;
    int n;
} http_links;

/* NULL if there is no memory. */
http_link *http_links_add(http_links *links, int descriptor, double deadline);
void http_links_remove(http_links *links, http_link *link); /* NULL is allowed */
/* Shuts down those that are late; whoever reads them sees their end. */
void http_links_end_late(http_links *links, double now);

#endif
