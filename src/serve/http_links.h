/* http_links.h - the connections of a server, and a thread that ends those whose requests take too long to
 * arrive: the HTTP library's own time limit restarts with every byte. Any thread may call these functions. */
#ifndef DSMOE_SERVE_HTTP_LINKS_H
#define DSMOE_SERVE_HTTP_LINKS_H

#include <stdbool.h>

typedef struct http_links http_links;
typedef struct http_link http_link;

/* `seconds`: how long a request may take to arrive; 0: no limit. NULL if there is no memory or no thread. */
http_links *http_links_create(double seconds);
/* Call it when all connections have been removed. `links` may be NULL. */
void http_links_free(http_links *links);
int http_links_count(http_links *links);

/* Adds a connection that begins to read a request. NULL if there is no memory; all functions accept that. */
http_link *http_links_add(http_links *links, int descriptor);
/* Call it while the descriptor is still open. */
void http_links_remove(http_links *links, http_link *link);

/* The next request begins; a part of it arrived, which extends its time; all of it has arrived. */
void http_link_begin(http_links *links, http_link *link);
void http_link_extend(http_links *links, http_link *link, double seconds);
void http_link_end(http_links *links, http_link *link);

#endif
