/* page.h - the files of the page for talking to the model, from src/serve/page/. */
#ifndef DSMOE_SERVE_PAGE_H
#define DSMOE_SERVE_PAGE_H

#include <stddef.h>

typedef struct page_file {
    const char *name; /* "index.html" */
    const unsigned char *bytes;
    size_t length;
} page_file;

extern const page_file page_files[]; /* made by cmake/embed.cmake; the last has no name */

/* The file for a path ("/" is index.html); NULL if there is none. */
const page_file *page_find(const char *path);
/* Its Content-Type. */
const char *page_type(const page_file *file);

#endif
