/* http_links.h - the connections of a server, and a thread that ends those whose requests take for ever: the HTTP library's
 * own limit begins again with every byte. Any thread may call. */
#ifndef DSMOE_SERVE_HTTP_LINKS_H
#define DSMOE_SERVE_HTTP_LINKS_H

#include <stdbool.h>

typedef struct http_links http_links;
typedef struct http_link http_link;

/* So long may a request take in general; 0: no limit. NULL if there is no memory or no thread. */
http_links *http_links_create(double seconds);
/* When all of them are removed. May be NULL. */
void http_links_free(http_links *links);
int http_links_count(http_links *links);

/* A connection, which begins to read a request. NULL if there is no memory, which all others allow. */
http_link *http_links_add(http_links *links, int descriptor);
/* While its descriptor is still open. */
void http_links_remove(http_links *links, http_link *link);

/* The next request begins; so many seconds more, as some of it came; it is in. */
void http_link_begin(http_links *links, http_link *link);
void http_link_extend(http_links *links, http_link *link, double seconds);
void http_link_end(http_links *links, http_link *link);

#endif
