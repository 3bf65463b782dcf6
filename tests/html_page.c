/* html_page.c - checks of an HTML page. */
#include "html_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data_files.h"
#include "report/page.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

char *read_page(const char *name)
{
    size_t size;
    unsigned char *bytes = read_data(name, &size);
    char *text = realloc(bytes, size + 1);
    assert_non_null(text);
    text[size] = '\0';
    return text;
}

/* Reads one tag at the start of the text; returns its length in bytes. */
static size_t read_tag(const char *text, char name[32], bool *closes, bool *empty)
{
    const char *at = text + 1;
    *closes = *at == '/';
    if (*closes) at++;
    size_t length = strcspn(at, " >/\n");
    assert_in_range(length, 1, 31);
    snprintf(name, 32, "%.*s", (int)length, at);
    bool quoted = false;
    for (; *at && (quoted || *at != '>'); at++) {
        if (*at == '"') quoted = !quoted;
        if (!quoted) assert_true(*at != '<'); /* within a tag */
    }
    assert_int_equal(*at, '>');
    *empty = at[-1] == '/' || !strcmp(name, "meta") || name[0] == '!';
    return (size_t)(at + 1 - text);
}

void assert_well_formed(const char *page)
{
    enum { DEEP = 64 };
    static char open[DEEP][32];
    int depth = 0;
    const char *style_end = strstr(page, "</style>"), *script_end = strstr(page, "</script>");
    assert_non_null(style_end);
    for (const char *at = page; *at;) {
        if (*at != '<') {
            at++;
            continue;
        }
        char name[32];
        bool closes, empty;
        at += read_tag(at, name, &closes, &empty);
        if (closes) {
            assert_true(depth > 0);
            assert_string_equal(name, open[--depth]);
        } else if (!empty) {
            assert_true(depth < DEEP);
            memcpy(open[depth++], name, sizeof name);
        }
        if (depth && !strcmp(open[depth - 1], "style")) at = style_end;
        if (depth && !strcmp(open[depth - 1], "script")) {
            assert_non_null(script_end);
            at = script_end;
        }
    }
    assert_int_equal(depth, 0);
    static const char *const wrong[] = {"=\"nan", "=\"-nan", "=\"inf", "=\"-inf", ",nan",
                                        ",-nan",  "NaN",     ">nan<",  ">inf<",   "nan%"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        if (strstr(page, wrong[i])) fail_msg("the page has a number that is none: %s", wrong[i]);
}

/* A copy of the page without the script that all pages have, to be freed. The script must be there
 * unchanged. */
static char *without_own_script(const char *page)
{
    size_t length = strlen("<script>\n") + strlen(page_script) + strlen("</script>");
    const char *own = strstr(page, page_script);
    assert_non_null(own);
    own -= strlen("<script>\n");
    assert_memory_equal(own, "<script>\n", strlen("<script>\n"));
    assert_memory_equal(own + length - strlen("</script>"), "</script>", strlen("</script>"));
    char *rest;
    assert_true(asprintf(&rest, "%.*s%s", (int)(own - page), page, own + length) >= 0);
    return rest;
}

void assert_alone(const char *page)
{
    static const char *const wrong[] = {"http:", "https:", "src=", "href=",   "<script", "@import",
                                        "url(",  "<link",  "//",   "onload=", "<iframe"};
    static const char *const loads[] = {"http",  "src",     "href", "import",
                                        "fetch", "XMLHttp", "eval", "innerHTML"};
    char *rest = without_own_script(page);
    for (size_t i = 0; i < COUNT(wrong); i++)
        if (strstr(rest, wrong[i])) fail_msg("the page has %s", wrong[i]);
    for (size_t i = 0; i < COUNT(loads); i++)
        if (strstr(page_script, loads[i])) fail_msg("the script has %s", loads[i]);
    free(rest);
}

void assert_shows(const char *page, const char *text)
{
    if (!strstr(page, text)) fail_msg("the page does not show: %s", text);
}

void assert_hides(const char *page, const char *text)
{
    if (strstr(page, text)) fail_msg("the page shows: %s", text);
}
