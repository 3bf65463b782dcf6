/* page.c - finds the files of the page. Paths are only compared with names; nothing is read from disk. */
#include "serve/page.h"

#include <string.h>

const page_file *page_find(const char *path)
{
    const char *name = path[0] == '/' ? path + 1 : path;
    if (!*name) name = "index.html";
    for (const page_file *file = page_files; file->name; file++)
        if (!strcmp(file->name, name)) return file;
    return NULL;
}

const char *page_type(const page_file *file)
{
    static const struct {
        const char *ending, *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const char *ending = strrchr(file->name, '.');
    for (size_t i = 0; ending && i < sizeof types / sizeof *types; i++)
        if (!strcmp(ending, types[i].ending)) return types[i].type;
    return "application/octet-stream";
}
